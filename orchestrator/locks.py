"""Whether a requirements file is hash-locked: every package exact, every file known by its hash.

A box installs with `--require-hashes` and no say in the matter, so what pip would refuse there is
refused here, before anything is paid for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_EXACT = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[^]]*\])?==[A-Za-z0-9.!+_-]+(\s*;.*?)?(\s+--hash.*)?"
)
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")


def unlocked_lines(text: str) -> Iterator[tuple[int, str]]:
    """Number and problem of every line that isn't an exact requirement with its hashes."""
    for number, line in _logical_lines(text):
        if line.startswith("-"):
            yield number, f"an option, {line.split()[0]}"
        elif not _EXACT.fullmatch(line):
            yield number, f"{line.split('--hash')[0].strip()!r} isn't name==version"
        elif not _HASH.search(line):
            yield number, f"{line!r} has no hash"


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined over their backslashes, without comments, by the number of the first."""
    start, parts = 1, list[str]()
    for number, raw in enumerate(text.splitlines(), 1):
        if not parts:
            start = number
        line = re.sub(r"(^|\s)#.*", "", raw).strip()
        parts.append(line.removesuffix("\\").strip())
        if line.endswith("\\"):
            continue
        if joined := " ".join(part for part in parts if part):
            yield start, joined
        parts = []
    if joined := " ".join(part for part in parts if part):
        yield start, joined
