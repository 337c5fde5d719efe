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

STATE = "trainer_state.json"
NEEDED = ("optimizer.pt", "scheduler.pt", "rng_state.pth")
"""Torch writes these as zip archives, whose directory comes last: a cut one is none."""
WEIGHTS = ("model.safetensors", "adapter_model.safetensors")
INDEX = "model.safetensors.index.json"
"""Names the shards of a model too large for one file."""

_NAME = re.compile(r"checkpoint-(\d+)")


def latest_complete_checkpoint(out: Path) -> Path | None:
    """The complete checkpoint with the highest step under `out`, or None."""
    steps = {step: path for path in _folders(out) if (step := checkpoint_step(path)) is not None}
    return steps[max(steps)] if steps else None


def checkpoint_step(folder: Path) -> int | None:
    """The step of a complete checkpoint; None if anything of it is missing or cut short."""
    if not all(zipfile.is_zipfile(folder / name) for name in NEEDED):
        return None
    if not _weights_whole(folder):
        return None
    try:
        step = json.loads((folder / STATE).read_text())["global_step"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return step if isinstance(step, int) and folder.name == f"checkpoint-{step}" else None


def _folders(out: Path) -> list[Path]:
    return [path for path in out.glob("checkpoint-*") if _NAME.fullmatch(path.name)]


def _weights_whole(folder: Path) -> bool:
    index = folder / INDEX
    if not index.is_file():
        return any(_tensors_whole(folder / name) for name in WEIGHTS)
    try:
        shards = set(json.loads(index.read_text())["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    return bool(shards) and all(_tensors_whole(folder / name) for name in shards)


def _tensors_whole(path: Path) -> bool:
    """A safetensors file says in its header how long it is."""
    try:
        with path.open("rb") as file:
            header_bytes = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(header_bytes))
        header.pop("__metadata__", None)
        ends = [entry["data_offsets"][1] for entry in header.values()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return False
    return path.stat().st_size == 8 + header_bytes + max(ends, default=0)
