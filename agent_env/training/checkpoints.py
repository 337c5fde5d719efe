"""Which checkpoint a run may go on from.

The trainer writes into the final folder, file by file, `trainer_state.json` last; and it resumes
in silence with a fresh optimizer or other random numbers when their files are missing. So the
newest folder by name may be a trap: only a complete one counts.
"""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

from agent_env.training.weights import weight_faults

STATE = "trainer_state.json"
NEEDED = ("optimizer.pt", "scheduler.pt", "rng_state.pth")
"""Torch writes these as zip archives, whose directory comes last: a cut one is none."""

_NAME = re.compile(r"checkpoint-(\d+)")


def latest_complete_checkpoint(out: Path) -> Path | None:
    """The complete checkpoint with the highest step under `out`, or None."""
    steps = {step: path for path in _folders(out) if (step := checkpoint_step(path)) is not None}
    return steps[max(steps)] if steps else None


def checkpoint_step(folder: Path) -> int | None:
    """The step of a complete checkpoint; None if anything of it is missing or cut short."""
    if not all(zipfile.is_zipfile(folder / name) for name in NEEDED):
        return None
    if any(weight_faults(folder)):
        return None
    try:
        step = json.loads((folder / STATE).read_text())["global_step"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return step if isinstance(step, int) and folder.name == f"checkpoint-{step}" else None


def _folders(out: Path) -> list[Path]:
    return [path for path in out.glob("checkpoint-*") if _NAME.fullmatch(path.name)]
