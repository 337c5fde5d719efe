"""An attempt as somebody reads it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agent_env.errors import TaskNotFound
from agent_env.evaluation.history import Message
from agent_env.evaluation.results import Row
from agent_env.nearest import question


def overview(rows: Sequence[Row]) -> str:
    """A line for each attempt, columns parted by tabs."""
    return "".join(f"{_head(row)}\n" for row in rows)


def transcripts(rows: Sequence[Row], task: str) -> str:
    """Every attempt at a task in full; `task` is its id or its index in the split.

    Raises TaskNotFound.
    """
    found = [row for row in rows if task in (row.task, str(row.index))]
    if not found:
        near = question(task, {row.task for row in rows})
        raise TaskNotFound(f"no attempt at the task {task!r}; {near}without it all are listed")
    return "\n".join(map(_transcript, found))


def _head(row: Row) -> str:
    reward = "unscored" if row.reward is None else f"{row.reward:.4f}"
    calls = f"{row.tool_calls} calls" + (f", {row.tool_failures} failed" * bool(row.tool_failures))
    return f"{row.task}\tattempt {row.attempt}\t{reward}\t{calls}\t{row.seconds:.1f} s"


def _transcript(row: Row) -> str:
    lines = [_head(row).replace("\t", " · ")]
    lines += [line for message in row.messages for line in _said(message)]
    lines += [f"== score {name}: {value:.4f}" for name, value in row.scores.items()]
    if row.reward is None:
        lines.append(f"== unscored, {row.code}: {row.error}")
    if row.cut:
        lines.append("== the policy was stopped at the limit of its tool calls")
    return "".join(f"{line}\n" for line in lines)


def _said(message: Message) -> list[str]:
    name = f" {message['name']}" if "name" in message else ""
    content = str(message["content"])
    calls = [f"-> {_call(call['function'])}" for call in message.get("tool_calls", ())]
    return [f"-- {message['role']}{name}", *([content.rstrip("\n")] if content else []), *calls]


def _call(function: dict[str, Any]) -> str:
    arguments = ", ".join(
        f"{name}={json.dumps(value)}" for name, value in function["arguments"].items()
    )
    return f"{function['name']}({arguments})"
