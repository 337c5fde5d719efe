"""Whether a model's weights are all there, told from their headers: no tensor is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

WEIGHTS = ("model.safetensors", "adapter_model.safetensors")
INDEX = "model.safetensors.index.json"
"""Names the shards of a model too large for one file."""

_LONGEST_HEADER = 100_000_000
"""Bytes; the format's own limit."""


def weight_faults(folder: Path) -> Iterator[str]:
    """One sentence for each file of weights that is missing or cut short."""
    index = folder / INDEX
    if not index.is_file():
        found = [name for name in WEIGHTS if (folder / name).is_file()]
        if not found:
            yield f"no weights in {folder}: neither {' nor '.join(WEIGHTS)}"
        yield from (fault for name in found if (fault := _fault(folder / name)))
        return
    try:
        shards = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError):
        shards = []
    if not shards:
        yield f"{index} can't be read: it names no weights"
    yield from (fault for name in shards if (fault := _fault(folder / name)))


def _fault(path: Path) -> str | None:
    """A safetensors file says in its header how long it is."""
    if not path.is_file():
        return f"{path} is missing"
    try:
        with path.open("rb") as file:
            header_bytes = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(header_bytes, _LONGEST_HEADER)))
        header.pop("__metadata__", None)
        ends = [entry["data_offsets"][1] for entry in header.values()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return f"{path} is no safetensors file, or cut short in its header"
    size, whole = path.stat().st_size, 8 + header_bytes + max(ends, default=0)
    return None if size == whole else f"{path} has {size} bytes, its header speaks of {whole}"
