"""A file too large for one request goes up in parts, may pause between them and go on later.

What counts is the hash of the bytes that were sent: it's carried along from part to part, so that
a file that changed meanwhile never becomes a blob.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from threading import BoundedSemaphore
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from orchestrator.box.regular import open_regular
from orchestrator.box.streams import STREAMS, streams

if TYPE_CHECKING:
    from hashlib import _Hash

Stop = Callable[[], bool]
Send = Callable[[int, bytes], dict[str, Any]]
"""Part number and bytes to what S3 answered."""


class Changed(Exception):
    """The file's bytes are no longer those that were hashed."""


class Paused(Exception):
    """Told to stop in the middle; what has gone up needn't go again."""


class Span(NamedTuple):
    """`size` bytes of a file, from `start` on."""

    path: Path
    start: int
    size: int


@dataclass
class Upload:
    """One that has begun. `sent`: parts 1, 2, … as S3 wants them named in the end."""

    id: str
    part_bytes: int
    sent: list[dict[str, Any]] = field(default_factory=list)
    digest: _Hash = field(default_factory=hashlib.sha256)


def never() -> bool:
    return False


def send_parts(
    upload: Upload,
    span: Span,
    sha256: str,
    send: Send,
    stop: Stop,
    room: BoundedSemaphore,
) -> None:
    """Send what hasn't gone yet, at least one part of it. `room`: how many may be in memory.

    Raises Changed, Paused, OSError and what `send` raises; all that went up before is in `upload`.
    """
    waiting: deque[tuple[Future[dict[str, Any]], _Hash]] = deque()
    digest, begin = upload.digest.copy(), len(upload.sent)
    parts = -(-span.size // upload.part_bytes)
    with streams(STREAMS) as pool, open_regular(span.path) as file:
        file.seek(span.start + begin * upload.part_bytes)
        try:
            for number in range(begin + 1, parts + 1):
                if number > begin + 1 and stop():
                    raise Paused(str(span.path))
                block = _next(file, upload, span.size, number, room)
                digest.update(block)
                future = pool.submit(_send_one, send, number, block, room)
                waiting.append((future, digest.copy()))
                del block
                if len(waiting) >= STREAMS:
                    _settle(upload, waiting)
        finally:
            while waiting:
                _settle(upload, waiting)
    if upload.digest.hexdigest() != sha256:
        raise Changed(str(span.path))


def _next(
    file: IO[bytes], upload: Upload, size: int, number: int, room: BoundedSemaphore
) -> bytes:
    room.acquire()
    try:
        return file.read(min(upload.part_bytes, size - (number - 1) * upload.part_bytes))
    except BaseException:
        room.release()
        raise


def _send_one(send: Send, number: int, block: bytes, room: BoundedSemaphore) -> dict[str, Any]:
    try:
        return send(number, block)
    finally:
        room.release()


def _settle(upload: Upload, waiting: deque[tuple[Future[dict[str, Any]], _Hash]]) -> None:
    future, digest = waiting.popleft()
    try:
        sent = future.result()
    except BaseException:
        for later, _ in waiting:  # a gap before them: they go again
            later.exception()
        waiting.clear()
        raise
    upload.sent.append(sent)
    upload.digest = digest
