"""What the front and a worker tell each other: JSON messages, some with a socket."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from agent_env.server.protocol import dump, load

MAX_BYTES = 2**16
FDS_PER_MESSAGE = 1

Message = dict[str, Any]


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends; messages keep their borders."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.setblocking(False)
    other.setblocking(False)
    return one, other


class Channel:
    """One end, read by the running loop. Nothing is lost while the other end is busy."""

    def __init__(
        self,
        end: socket.socket,
        told: Callable[[Message, int | None], None],
        ended: Callable[[], None],
    ) -> None:
        """`told` gets each message, and the socket's descriptor that came with it."""
        self._end = end
        self._told = told
        self._ended = ended
        self._outbox: deque[tuple[bytes, int | None]] = deque()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(end, self.pump)
        self._open = True

    def tell(self, message: Message, fd: int | None = None) -> None:
        """Send a message, and a copy of `fd`, which must stay open until that is taken."""
        if not self._open:
            return
        self._outbox.append((dump(message).encode(), fd))
        if len(self._outbox) == 1:
            self._flush()

    def pump(self) -> None:
        """Hear all that was said until now."""
        while self._open:
            try:
                data, fds, _, _ = socket.recv_fds(self._end, MAX_BYTES, FDS_PER_MESSAGE)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data, fds = b"", []
            if not data:
                self.close()
                self._ended()
                return
            self._told(load(data), fds[0] if fds else None)

    def close(self) -> None:
        """Say and hear no more."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._end)
            self._loop.remove_writer(self._end)
            self._end.close()
            self._outbox.clear()

    def _flush(self) -> None:
        while self._outbox:
            data, fd = self._outbox[0]
            try:
                socket.send_fds(self._end, [data], [] if fd is None else [fd])
            except (BlockingIOError, InterruptedError):
                self._loop.add_writer(self._end, self._flush)
                return
            except OSError:  # the other end is gone, as `pump` is about to hear
                return
            self._outbox.popleft()
        self._loop.remove_writer(self._end)
