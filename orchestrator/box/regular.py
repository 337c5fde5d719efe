"""Opening what a job may have put in a file's place: a pipe or a device would hold the agent."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO


class NotRegular(OSError):
    """It's a pipe, a socket, a device or a folder."""


def open_regular(path: str | Path, flags: int = os.O_RDONLY, mode: str = "rb") -> IO[bytes]:
    """Like `path.open(mode)`, but never waits. Raises OSError, NotRegular among them."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular(f"{path} is no regular file")
    return os.fdopen(descriptor, mode)
