"""The frozen stories: one gzipped JSON line each, written by `generate`, read here."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("data")
SPLITS = {"train": 300, "eval": 100}


@cache
def lines(split: str) -> tuple[bytes, ...]:
    """A split's stories as they lie in the file, one a line."""
    return tuple(gzip.decompress((FOLDER / f"{split}.jsonl.gz").read_bytes()).splitlines())


@cache
def stories(split: str) -> tuple[dict[str, Any], ...]:
    """The same, parsed; `Story.model_validate` reads one."""
    return tuple(json.loads(line) for line in lines(split))
