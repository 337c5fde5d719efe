"""A full disk, whoever meets it and however he puts it.

Python raises OSError; Rust's libraries raise errors of their own with the system's words; torch
says only that its archive isn't where it should be.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT)
_WORDS = ("No space left on device", "Disk quota exceeded")
_TORCH = "inline_container.cc"
_NOTHING_LEFT = 2**20
"""Bytes; torch leaves what it could write where it is, so a disk that stopped it has less."""


def full_disk(error: BaseException, out: Path) -> str | None:
    """Its words in one line, if that ended a program that writes to `out`; else None."""
    for one in _chain(error):
        full = isinstance(one, OSError) and one.errno in _FULL
        if full or any(words in str(one) for words in _WORDS):
            return _line(one, out)
        if _TORCH in str(one) and _free(out) < _NOTHING_LEFT:
            return f"nothing is left for {out}"
    return None


def _line(error: BaseException, out: Path) -> str:
    (said, *_) = str(error).splitlines()
    return said if getattr(error, "filename", None) else f"{said}, writing to {out}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """It, and what it was raised from or in the handling of."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _free(folder: Path) -> float:
    """Bytes for this user; without end where nobody can tell."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return float("inf")
