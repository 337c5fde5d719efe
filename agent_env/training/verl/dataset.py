"""Tasks as the Parquet file that verl trains on.

A row names its loop, so that rows of several bundles may be mixed. What a task has of its own is
one column of JSON text: Arrow would merge the fields of all rows into each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from agent_env.client import AgentEnv
from agent_env.errors import NotInstalled

AGENT_NAME = "agent_env"

MADE_BY = "make the dataset's rows with agent_env.training.verl.rows"
"""What to do about rows that aren't ours."""

_OWN = ("prompt", "task_id", "split", "index", "environment")


def rows(
    env: AgentEnv, *splits: str, seed: int | None = None, purpose: str = "train"
) -> list[dict[str, Any]]:
    """A row for each task of the splits, in their order. Raises TaskNotFound, ServerDown.

    `seed` is the episodes' own; without it the server derives one from the task. `purpose` is
    what the record of rollouts says of them: "train" or "eval", which verl doesn't tell a loop.
    """
    told = {"seed": seed, "purpose": purpose}
    return [_row(row, env.bundle_of(row["split"]), told) for row in env.rows(*splits)]


def names_task(row: Mapping[str, Any]) -> bool:
    """Whether the row says which task is to be played."""
    told = row.get("extra_info") or {}
    return told.get("split") is not None and told.get("index") is not None


def write_dataset(path: Path, given: Sequence[dict[str, Any]]) -> Path:
    """Write `rows` as Parquet. Raises NotInstalled without pyarrow, ValueError for no rows."""
    if not given:
        raise ValueError(f"{path.name}: a dataset needs at least one task")
    arrow, parquet = _arrow()
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".partial")
    parquet.write_table(arrow.Table.from_pylist(list(given)), beside)
    beside.rename(path)
    return path


def _row(row: dict[str, Any], bundle: str, told: dict[str, Any]) -> dict[str, Any]:
    task = {name: value for name, value in row.items() if name not in _OWN and value is not None}
    return {
        "prompt": row["prompt"],
        "data_source": bundle,
        "agent_name": AGENT_NAME,
        "task": json.dumps(task, sort_keys=True),
        "extra_info": {
            "index": row["index"],
            "split": row["split"],
            "bundle": bundle,
            "task_id": row["task_id"],
            **told,
        },
    }


def _arrow() -> tuple[Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        message = "verl's dataset needs the package pyarrow"
        raise NotInstalled(message, extra="train") from None
