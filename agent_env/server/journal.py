"""The journal: one file per session, JSON lines, appended before the reply is sent.

A folder has the journals of sessions that have their slot, and in `left/` those of sessions that
gave it up and may still be gone on with; so the folder alone says what a server that was killed
has to keep room for. A write that fails leaves the file as it was.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path

from agent_env.errors import JournalError
from agent_env.server.protocol import SESSION_ID
from agent_env.server.slots import Slots

LEFT_PER_SLOT = 4
"""How many given-up journals are kept for each session that may be open."""

_SUFFIX = ".jsonl"


class JournalFull(Exception):
    """A record can't be written; nothing of it stands in the file."""


class JournalFile:
    """One session's journal, open for appending."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._size

    def begin(self, records: bytes) -> None:
        """Replace all that was written, at once or not at all. Raises JournalFull."""
        half = self.path.with_suffix(".half")
        try:
            fd = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        except OSError as error:
            raise JournalFull(str(error)) from error
        try:
            _write(fd, records, 0)
            half.rename(self.path)
        except OSError as error:
            os.close(fd)
            half.unlink(missing_ok=True)
            raise JournalFull(str(error)) from error
        self.close()
        self._fd, self._size = fd, len(records)

    def append(self, records: bytes) -> None:
        """Write whole lines, or nothing. Raises JournalFull."""
        try:
            if self._fd < 0:
                self._open()
            _write(self._fd, records, self._size)
        except OSError as error:
            raise JournalFull(str(error)) from error
        self._size += len(records)

    def note(self, record: bytes) -> None:
        """Append to it, or begin it where there is none. Raises JournalFull."""
        if self._fd < 0 and not self.path.exists():
            self.begin(record)
        else:
            self.append(record)

    def compact(self, records: bytes) -> None:
        """Keep the first line and then only these records, which stand for all before them.

        Raises JournalFull.
        """
        try:
            first, _, _ = self.read().partition(b"\n")
        except OSError as error:
            raise JournalFull(str(error)) from error
        self.begin(first + b"\n" + records)

    def read(self) -> bytes:
        """All that stands in it, less a torn last line. Raises OSError."""
        written = self.path.read_bytes()
        return written[: written.rfind(b"\n") + 1]

    def sync(self) -> None:
        """To the disk itself, as far as it goes."""
        if self._fd >= 0:
            with suppress(OSError):
                os.fsync(self._fd)

    def close(self) -> None:
        """Let go of the file; the next append opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def remove(self) -> None:
        """The session is over."""
        self.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _open(self) -> None:
        self._size = len(self.read())
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        os.ftruncate(self._fd, self._size)


def _write(fd: int, records: bytes, size: int) -> None:
    """All of it; what was written in part is taken back. Raises OSError."""
    try:
        written = os.write(fd, records)
        while written < len(records):
            written += os.write(fd, records[written:])
    except OSError:
        with suppress(OSError):
            os.ftruncate(fd, size)
        raise


class Journals:
    """A server's folder of journals, which no other server may use meanwhile."""

    def __init__(self, folder: Path, max_sessions: int) -> None:
        """Raises JournalError when the folder can't be written to, or another process has it."""
        self._folder = folder
        self._left = folder / "left"
        self._max_left = LEFT_PER_SLOT * max_sessions
        try:
            self._left.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _locked(folder / "lock")
            for half in folder.glob("*.half"):
                half.unlink()
        except OSError as error:
            raise JournalError(f"the journal folder {folder} can't be used: {error}") from error

    def reclaim(self, slots: Slots) -> None:
        """Keep room for the sessions that had it when the last server was killed, newest first."""
        found = {path: path.stat().st_mtime_ns for path in self._folder.glob(f"*{_SUFFIX}")}
        newest = sorted(found, key=lambda path: found[path], reverse=True)
        for session_id in slots.claim([path.stem for path in newest]):
            self.leave(session_id)

    def has(self, session_id: str) -> bool:
        """Whether the session may be gone on with."""
        return self._path(session_id).exists() or self._left_path(session_id).exists()

    def file(self, session_id: str) -> JournalFile:
        """The session's journal, which from now on has its slot."""
        with suppress(FileNotFoundError):
            self._left_path(session_id).rename(self._path(session_id))
        return JournalFile(self._path(session_id))

    def leave(self, session_id: str) -> None:
        """The session gave its slot up; the oldest of these are dropped when there are many."""
        with suppress(OSError):
            self._path(session_id).rename(self._left_path(session_id))
        with suppress(OSError):
            left = sorted(self._left.iterdir(), key=lambda path: path.stat().st_mtime_ns)
            for path in left[: max(0, len(left) - self._max_left)]:
                path.unlink()

    def _path(self, session_id: str) -> Path:
        return self._folder / f"{_checked(session_id)}{_SUFFIX}"

    def _left_path(self, session_id: str) -> Path:
        return self._left / f"{_checked(session_id)}{_SUFFIX}"


def _locked(path: Path) -> int:
    """The open file; the kernel lets go of it when the process ends, however it ends."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Not flock: a forked worker that is about to die would hold it on.
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise OSError(error.errno, "another server writes to it; give each its own") from error
    return fd


def _checked(session_id: str) -> str:
    if not re.fullmatch(SESSION_ID, session_id):
        raise ValueError(f"{session_id!r} can't name a session")
    return session_id
