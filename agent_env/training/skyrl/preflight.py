"""What would go wrong, found before a model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_env.client import AgentEnv
from agent_env.training.config.addresses import is_loopback
from agent_env.training.job import JobFailed
from agent_env.training.skyrl._server import server_for
from agent_env.training.skyrl.settings import EnvSettings


def check(
    settings: EnvSettings,
    *,
    rollouts: int,
    prompts: Sequence[Any],
    tokenizer: Any,
    max_prompt_length: int,
    prompts_per_step: int,
    nodes: int = 1,
) -> list[str]:
    """Notes on what will only be slow. Raises JobFailed for what can't work, and SessionError.

    `rollouts` run at once, a step's prompts times the samples of each; `prompts` are those of the
    dataset, as they are written there.
    """
    if nodes > 1 and is_loopback(settings.url):
        raise JobFailed(
            f"{settings.url} is another machine on each of {nodes} nodes: serve on an address that"
            " all of them reach, and set env_url"
        )
    _check_prompts(prompts, tokenizer, max_prompt_length)
    if len(prompts) < prompts_per_step:
        raise JobFailed(
            f"a step takes {prompts_per_step} tasks, the split has {len(prompts)}: lower"
            " rollouts_per_step, or raise rollouts_per_task"
        )
    room = server_for(settings).capacity()
    with AgentEnv(settings.url, owner=settings.owner or None) as env:
        env.check(sessions=min(rollouts, room or rollouts))
    if room is None or room >= rollouts:
        return []
    return [
        f"{rollouts} rollouts take turns on the server's {room} sessions;"
        f" --max-sessions {rollouts} would let all of them run at once"
    ]


def _check_prompts(prompts: Sequence[Any], tokenizer: Any, most: int) -> None:
    """SkyRL drops what is too long without a word."""
    lengths = [_tokens(prompt, tokenizer) for prompt in prompts]
    long = sum(length > most for length in lengths)
    if long:
        raise JobFailed(
            f"{long} of {len(prompts)} prompts have more than {most} tokens with their tools, the"
            f" longest {max(lengths)}: set prompt_tokens to that"
        )


def _tokens(prompt: Any, tokenizer: Any) -> int:
    return len(
        tokenizer.apply_chat_template(
            prompt, add_generation_prompt=True, tokenize=True, return_dict=False
        )
    )
