"""Accepts connections and finds out where each wants to go, without taking a byte from it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from agent_env.server.head import MAX_HEAD, Target, read_target

_log = logging.getLogger(__name__)

HEAD_TIMEOUT_S = 10.0
"""How long a connection may take to say where it wants to go."""
ACCEPTS_AT_ONCE = 64
BACKLOG = 2048
LOOK_AGAIN_S = 0.05
ACCEPT_AGAIN_S = 1.0

Route = Callable[[socket.socket, Target, float], None]
"""Takes a connection over; the number is the loop's time by which it must be on its way."""


class Doorway:
    """A listening socket of the running loop."""

    def __init__(self, listener: socket.socket, route: Route) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._route = route
        listener.setblocking(False)
        listener.listen(BACKLOG)
        self._open()

    def close(self) -> None:
        """Accept no more."""
        self._loop.remove_reader(self._listener)

    def _open(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                connection, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptor is free: "readable" would spin
                _log.error("a connection can't be accepted: %s", error)
                self.close()
                self._loop.call_later(ACCEPT_AGAIN_S, self._open)
                return
            connection.setblocking(False)
            self._look(connection, self._loop.time() + HEAD_TIMEOUT_S)

    def _look(self, connection: socket.socket, deadline: float) -> None:
        """Read the first line if it is there, else come back."""
        try:
            head = connection.recv(MAX_HEAD, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            self._await(connection, deadline)
            return
        except OSError:
            head = b""
        target = read_target(head) if head else None
        if target is not None:
            self._route(connection, target, deadline)
        elif head and self._loop.time() < deadline:
            # Half a line stays readable: waiting for that would spin.
            self._loop.call_later(LOOK_AGAIN_S, self._look, connection, deadline)
        else:
            connection.close()

    def _await(self, connection: socket.socket, deadline: float) -> None:
        def readable() -> None:
            timer.cancel()
            self._loop.remove_reader(connection)
            self._look(connection, deadline)

        def too_late() -> None:
            self._loop.remove_reader(connection)
            connection.close()

        timer = self._loop.call_at(deadline, too_late)
        self._loop.add_reader(connection, readable)
