"""Good attempts as data to fine-tune on: JSON lines with `messages` and `tools`, as TRL's
SFTTrainer takes them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agent_env.errors import ResultsError
from agent_env.evaluation.results import Header, Row
from agent_env.statistics import reaches

_KEYS = {"messages", "tools"}


def examples(header: Header, rows: Iterable[Row], min_reward: float) -> list[dict[str, Any]]:
    """The conversations whose reward is at least `min_reward`; unscored ones never are."""
    return [
        {"messages": row.messages, "tools": header.tools}
        for row in rows
        if row.reward is not None and reaches(row.reward, min_reward)
    ]


def check_out(out: Path, source: Path) -> None:
    """Raise ResultsError unless `out` is free, or holds what an earlier export wrote."""
    if not out.parent.is_dir():
        raise ResultsError(f"--out {out}: there is no folder {out.parent}")
    if not out.exists():
        return
    if source.exists() and out.samefile(source):
        raise ResultsError(f"--out {out} is what is exported; name another file")
    if not out.is_file() or not _exported(out):
        raise ResultsError(f"--out {out} is there and no earlier export; name another file")


def _exported(path: Path) -> bool:
    try:
        with path.open() as lines:
            found = [json.loads(line) for line in lines]
    except OSError as error:
        raise ResultsError(f"--out {path} can't be read: {error.strerror}") from error
    except ValueError:
        return False
    return all(isinstance(example, dict) and set(example) == _KEYS for example in found)


def as_lines(found: Iterable[dict[str, Any]]) -> str:
    """One JSON object a line."""
    return "".join(json.dumps(example) + "\n" for example in found)
