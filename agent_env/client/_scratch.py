"""A folder of a process's own that nobody needs after it.

It is removed at its end, and where its process was killed, by whoever makes the next one: the
kernel lets go of the lock in it however its owner ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from agent_env.errors import JournalError

_PREFIX = "agent-env-own-"
_LOCK = "owner"


class Scratch:
    """Raises JournalError where none can be made."""

    def __init__(self) -> None:
        try:
            _sweep(Path(tempfile.gettempdir()))
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            # It has its name only once it is locked: before that the folder isn't swept.
            unnamed = self.path / "unnamed"
            self._lock = _locked(unnamed, os.O_CREAT)
            unnamed.rename(self.path / _LOCK)
        except OSError as error:
            message = f"no folder for the server's journal: {error}; set TMPDIR, or give journal="
            raise JournalError(message) from error

    def remove(self) -> None:
        """Safe to call twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _sweep(temporary: Path) -> None:
    """Remove the folders of processes that are gone."""
    for folder in temporary.glob(f"{_PREFIX}*"):
        try:
            lock = _locked(folder / _LOCK, 0)
        except OSError:  # its owner lives, or it is another user's
            continue
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked(path: Path, flags: int) -> int:
    """The open file; it isn't handed to programs that are started. Raises OSError."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd
