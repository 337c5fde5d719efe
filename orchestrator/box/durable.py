"""What a box that is cut off must find whole when it boots again: bytes first, then their name.

A file that got its name a moment ago may have no bytes after a crash, as ext4 writes those later.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Any


def sync_file(file: IO[Any]) -> None:
    """Wait until all that was written to it is on the disk. Raises OSError."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """The same of every file in there, as far as it may be read. Raises OSError."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with suppress(PermissionError), path.open("rb") as file:
                os.fsync(file.fileno())


def write_whole(path: Path, text: str) -> None:
    """Afterwards the file has the text, whatever happens next. Raises OSError."""
    part = path.with_name(path.name + ".part")
    with part.open("w") as file:
        file.write(text)
        sync_file(file)
    part.replace(path)
