"""The blocking driver: carries out a conversation's commands over `websockets.sync`."""

from __future__ import annotations

import os
import socket
import struct
import time
import weakref
from contextlib import ExitStack, suppress

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from agent_env.client._dial import FAULTS, GOODBYE, cut, failed
from agent_env.client._site import Site
from agent_env.client._talk import Ask, Command, Ended, HangUp, Open, Pause, T, Talk, resumed


class Connection:
    """An open socket. One that is forgotten says goodbye, so that the server has its slot back."""

    def __init__(self, stack: ExitStack, opened: ClientConnection) -> None:
        self._socket = opened
        # The library's own thread keeps a forgotten socket alive, and its session with it.
        self._finalizer = weakref.finalize(self, _end, stack, opened, True, os.getpid())
        self._finalizer.atexit = False

    @classmethod
    def open(cls, site: Site, command: Open) -> Connection:
        """Raises ServerDown, Unauthorized, Cut, or ProtocolError where something else answers."""
        stack, address = ExitStack(), site.address
        try:
            options = address.options(command.timeout_s)
            opened = stack.enter_context(connect(address.sessions(command.query), **options))
        except FAULTS as error:
            raise failed(address, error) from error
        connection = cls(stack, opened)
        site.opened(connection)
        return connection

    def ask(self, text: str, timeout_s: float) -> str | bytes:
        """Send a frame, wait for the next. Raises Cut, TimeoutError."""
        deadline = time.monotonic() + timeout_s
        _bound_sending(self._socket.socket, timeout_s)
        # A server that turns us away says why before it closes: read that even if sending fails.
        with suppress(ConnectionClosed):
            self._socket.send(text)
        try:
            return self._socket.recv(max(0.0, deadline - time.monotonic()))
        except ConnectionClosed as error:
            if time.monotonic() >= deadline:
                raise TimeoutError from error
            raise cut(error) from error

    def hang_up(self, *, goodbye: bool) -> None:
        """Close, and end the session with a goodbye; safe to call twice, or from any thread."""
        ending = self._finalizer.detach()
        if ending is not None:
            stack, opened, _, owner = ending[2]
            _end(stack, opened, goodbye, owner)


class Wire:
    """At most one connection, and the time."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._connection: Connection | None = None

    def run(self, talk: Talk[T]) -> T:
        """Hold the conversation; gives back what it comes to, and raises what it raises."""
        command = resumed(talk.send, None)
        while not isinstance(command, Ended):
            try:
                came = self._do(command)
            except Exception as error:
                command = resumed(talk.throw, error)
            except BaseException:
                # Interrupted in mid-frame: a late reply must find nobody.
                self._hang_up(goodbye=False)
                talk.close()
                raise
            else:
                command = resumed(talk.send, came)
        result: T = command.result
        return result

    def _do(self, command: Command) -> str | bytes | None:
        match command:
            case Open():
                self._hang_up(goodbye=False)
                self._connection = Connection.open(self._site, command)
            case Ask(text, timeout_s):
                assert self._connection is not None  # noqa: S101 - a conversation opens first
                return self._connection.ask(text, timeout_s)
            case Pause(seconds):
                time.sleep(seconds)
            case HangUp(goodbye):
                self._hang_up(goodbye=goodbye)
        return None

    def _hang_up(self, *, goodbye: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._site.closed(connection)
            connection.hang_up(goodbye=goodbye)


def _bound_sending(raw: socket.socket, timeout_s: float) -> None:
    """A hung server doesn't read; without a limit a large frame would wait for it for ever."""
    whole = int(timeout_s)
    limit = struct.pack("ll", whole, max(1, int((timeout_s - whole) * 1e6)))
    with suppress(OSError):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def _end(stack: ExitStack, opened: ClientConnection, goodbye: bool, owner: int) -> None:
    if os.getpid() != owner:  # a forked copy of this process ends; the session isn't its own
        return
    if goodbye:
        _bound_sending(opened.socket, 1.0)
        with suppress(OSError, ConnectionClosed):
            opened.send(GOODBYE)
    else:
        with suppress(OSError):
            opened.socket.shutdown(socket.SHUT_RDWR)
    with suppress(OSError, ConnectionClosed):
        stack.close()
