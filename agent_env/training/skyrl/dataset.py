"""The rows that SkyRL reads: a prompt that shows the tools, and one JSON column for the task.

Tool definitions are part of the system prompt, written as the model's own chat template writes
them, so that bundles with different tools mix in one dataset. The task is JSON because Arrow
would merge the fields of all bundles into every row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from agent_env.client import AgentEnv
from agent_env.training._calls import Form, form_of
from agent_env.training.ray_rollout import shown
from agent_env.training.skyrl.settings import ENV_CLASS

_MARK = "<<here the system prompt goes>>"


def skyrl_rows(
    env: AgentEnv,
    *splits: str,
    tokenizer: Any,
    limit: int | None = None,
    seed: int | None = None,
    answers_end_turns: bool = True,
) -> list[dict[str, Any]]:
    """A row for each task of the splits, or for the first `limit` of each.

    Raises ValueError for a tokenizer whose chat template can't show tools, or teaches calls in a
    form that isn't read here, and what `AgentEnv.tasks` raises.
    """
    rows = []
    for split in splits:
        tools = shown(env.tools(split), text_ends_turn=answers_end_turns)
        form = _form(tokenizer, tools)
        for row in env.rows(split)[:limit]:
            task = {name: row[name] for name in ("task_id", "split", "index")}
            rows.append(
                {
                    "prompt": with_tools(tokenizer, row["prompt"], tools),
                    "env_class": ENV_CLASS,
                    "data_source": split,
                    "task": json.dumps({**task, "seed": seed, "form": form}),
                }
            )
    return rows


def with_tools(
    tokenizer: Any, prompt: Sequence[dict[str, str]], tools: Sequence[dict[str, Any]]
) -> list[dict[str, str]]:
    """The prompt with a system message under which the template renders what it renders of tools,
    which are as `shown` has them.

    Raises ValueError where the template has no place for them.
    """
    if not tools:
        return list(prompt)
    wanted = _rendered(tokenizer, prompt, tools=list(tools))
    rest = [message for message in prompt if message["role"] != "system"]
    before, _, after = _rendered(
        tokenizer, [{"role": "system", "content": _MARK}, *rest]
    ).partition(_MARK)
    system = wanted.removeprefix(before).removesuffix(after)
    whole = [{"role": "system", "content": system}, *rest]
    names = [tool["function"]["name"] for tool in tools]
    missing = [name for name in names if name not in system]
    if missing or _rendered(tokenizer, whole) != wanted:
        raise ValueError(
            "the model's chat template can't show tools"
            f"{': ' + ', '.join(missing) if missing else ''}; take a model trained to call them"
        )
    return whole


def write_dataset(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """As Parquet. Raises ValueError without rows."""
    if not rows:
        raise ValueError(f"{path.name}: no rows, so there is nothing to train on")
    path.parent.mkdir(parents=True, exist_ok=True)
    import_module("datasets").Dataset.from_list(list(rows)).to_parquet(str(path))


def _form(tokenizer: Any, tools: Sequence[dict[str, Any]]) -> Form:
    form = form_of(tokenizer.chat_template or "")
    if form is None and tools:
        raise ValueError(
            "the model's chat template teaches no form of calls that is read here, which are JSON"
            " or <function=…> between <tool_call> tags; take a model of Qwen2.5's, Qwen3's or"
            " Nemotron 3's family"
        )
    return form or "json"


def _rendered(tokenizer: Any, messages: Sequence[dict[str, str]], **named: Any) -> str:
    text: str = tokenizer.apply_chat_template(
        list(messages), tokenize=False, add_generation_prompt=True, **named
    )
    return text
