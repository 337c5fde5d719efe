"""Conversations in which the bundle's expert plays, on the environment that training will use.

Played, not written: prompt, observation and tool results are letter by letter what the trainer
will show the model.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from agent_env.bundle import Bundle
from agent_env.training.job import JobFailed

Message = dict[str, Any]
Conversation = list[Message]
Call = tuple[str, dict[str, Any]]

FAREWELL = "done"
"""What the model says when it has made its calls; nothing scores it."""


def play_expert(
    bundle: Bundle,
    rows: Sequence[Mapping[str, Any]],
    environment: Any,
    *,
    split: str,
    noise: float,
    count: int,
    rng: random.Random,
) -> list[Conversation]:
    """`count` conversations on rows drawn with `rng`; equal ones are played once and repeated.

    Raises JobFailed when an episode can't be scored.
    """
    tasks = bundle.tasks(split)
    played: dict[str, Conversation] = {}
    conversations = []
    for _ in range(count):
        index = rng.randrange(len(rows))
        calls = bundle.expert(tasks[index], noise=noise, rng=rng)
        key = repr((index, calls))
        if key not in played:
            played[key] = _play(environment, rows[index], calls)
        conversations.append(played[key])
    return conversations


def tools_of(environment: Any) -> list[Any]:
    """The methods that a trainer offers the model, in its order."""
    names = sorted(name for name in dir(type(environment)) if not name.startswith("_"))
    hidden = {"reset", "get_reward"}
    return [getattr(environment, name) for name in names if name not in hidden]


def _play(environment: Any, row: Mapping[str, Any], calls: Sequence[Call]) -> Conversation:
    observation = environment.reset(**row) or ""
    *above, last = row["prompt"]
    talk: Conversation = [*above, {**last, "content": last["content"] + observation}]
    for name, arguments in calls:
        result = getattr(environment, name)(**arguments)
        talk += [_call(name, arguments), {"role": "tool", "name": name, "content": str(result)}]
    if environment.get_reward() is None:
        told = talk[-1]["content"]
        raise JobFailed(f"an episode of the expert was not scored; the last it was told: {told}")
    return [*talk, {"role": "assistant", "content": FAREWELL}]


def _call(name: str, arguments: dict[str, Any]) -> Message:
    function = {"name": name, "arguments": arguments}
    calls = [{"type": "function", "function": function}]
    return {"role": "assistant", "content": "", "tool_calls": calls}
