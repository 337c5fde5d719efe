"""Dataset rows: one shape for all of them, whatever the tasks have beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agent_env.types import TaskData

_PLAIN = str | int | float | bool | None


def row(task: TaskData) -> dict[str, Any]:
    """What a trainer reads of a task: the chat so far, and what `reset` needs to open it."""
    system = [{"role": "system", "content": task.system_prompt}] if task.system_prompt else []
    prompt = [*system, {"role": "user", "content": task.prompt}]
    own = {"prompt": prompt, "task_id": task.id, "split": task.split, "index": task.index}
    return own | {name: _plain(value) for name, value in task.data.items() if name not in own}


def with_all_columns(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with the columns of all of them, None where a row has none.

    A dataset takes its columns from the first row and drops what only later ones have.
    """
    columns = {name: None for row in rows for name in row}
    return [columns | row for row in rows]


def _plain(value: object) -> _PLAIN:
    """A column holds one type: what isn't a plain value becomes its JSON."""
    return value if isinstance(value, _PLAIN) else json.dumps(value, sort_keys=True)
