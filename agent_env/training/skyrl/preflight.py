"""What would go wrong, found before a model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_env.client import AgentEnv
from agent_env.training.config import ConfigError
from agent_env.training.config.addresses import is_loopback
from agent_env.training.ray_rollout import prompt_ids, too_long
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
    """Notes on what will only be slow. Raises ConfigError for what can't work, and SessionError.

    `rollouts` run at once, a step's prompts times the samples of each; `prompts` are those of the
    dataset, as they are written there.
    """
    # SkyRL drops what is too long without a word.
    lengths = {f"number {n}": len(prompt_ids(tokenizer, one)) for n, one in enumerate(prompts)}
    faults = [*too_long(lengths, max_prompt_length)]
    if nodes > 1 and is_loopback(settings.url):
        faults.append(
            f"env_url: {settings.url} is another machine on each of {nodes} nodes: serve on an"
            " address that all of them reach"
        )
    if len(prompts) < prompts_per_step:
        faults.append(
            f"rollouts_per_step: a step takes {prompts_per_step} tasks, the split has"
            f" {len(prompts)}: lower it, or raise rollouts_per_task"
        )
    if faults:
        raise ConfigError(faults)
    room = server_for(settings).capacity()
    with AgentEnv(settings.url, owner=settings.owner or None) as env:
        env.check(sessions=min(rollouts, room or rollouts))
    if room is None or room >= rollouts:
        return []
    return [
        f"{rollouts} rollouts take turns on the server's {room} sessions;"
        f" --max-sessions {rollouts} would let all of them run at once"
    ]
