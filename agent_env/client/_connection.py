"""One websocket to an env server: one frame out, one reply in, every wait bounded.

Whatever goes wrong leaves as one of our errors; after a missed reply the socket is closed, since
a late reply could be taken for the next one.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from socket import SHUT_RDWR
from typing import Any, TypeVar
from urllib.parse import urlsplit

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from agent_env.errors import (
    AtCapacity,
    EpisodeFailed,
    NotReset,
    ProtocolError,
    ServerDown,
    SessionError,
    SessionLost,
    StepTimeout,
)
from agent_env.types import EpisodeState, Observation

T = TypeVar("T")

MAX_FRAME_BYTES = 100 * 2**20


class Connection:
    """An open socket, which is a session of the server."""

    def __init__(self, stack: ExitStack, socket: ClientConnection, url: str) -> None:
        self._socket = socket
        self._url = url
        # The library's own thread keeps a forgotten socket alive, and its session with it.
        self._finalizer = weakref.finalize(self, _close, stack)
        self._finalizer.atexit = False

    @classmethod
    def open(cls, url: str, timeout_s: float) -> Connection:
        """Raises ServerDown, or ProtocolError where something else than an env server answers."""
        stack = ExitStack()
        try:
            socket = stack.enter_context(_dial(url, timeout_s))
        except InvalidStatus as error:
            status = error.response.status_code
            if status < 500:
                raise ProtocolError(f"{url} is no env server: HTTP {status} on /ws") from error
            raise ServerDown(f"{url} answers HTTP {status}") from error
        except (OSError, InvalidHandshake, ConnectionClosed, EOFError) as error:
            raise ServerDown(f"{url} can't be reached: {error}") from error
        return cls(stack, socket, url)

    def observe(self, kind: str, data: dict[str, Any], timeout_s: float) -> Observation:
        """Send a `reset` or a `step`; any SessionError may be raised."""
        return self._ask({"type": kind, "data": data}, "observation", _observation, timeout_s)

    def state(self, timeout_s: float) -> EpisodeState:
        """Where the episode stands, as the server sees it."""
        return self._ask({"type": "state"}, "state", EpisodeState.model_validate, timeout_s)

    def close(self) -> None:
        """Give the session back; safe to call twice, or after the server is gone."""
        self._finalizer()

    def abort(self) -> None:
        """Close without waiting for the server's goodbye."""
        with suppress(OSError):
            self._socket.socket.shutdown(SHUT_RDWR)
        self.close()

    def _ask(
        self, frame: dict[str, Any], wanted: str, read: Callable[[Any], T], timeout_s: float
    ) -> T:
        # A server that turns us away says why before it closes: read that even if sending fails.
        with suppress(ConnectionClosed):
            self._socket.send(json.dumps(frame))
        try:
            text = self._socket.recv(timeout_s)
        except TimeoutError as error:
            self.abort()
            raise StepTimeout(f"{self._url}: no reply within {timeout_s:.1f} s") from error
        except ConnectionClosed as error:
            raise SessionLost(f"{self._url}: the connection broke: {error}") from error
        try:
            return read(_unwrapped(json.loads(text), wanted))
        except SessionError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.close()
            raise ProtocolError(f"{self._url}: unreadable reply: {error}") from error


def _dial(url: str, timeout_s: float) -> ClientConnection:
    return connect(
        websocket_url(url),
        open_timeout=timeout_s,
        close_timeout=1.0,
        ping_interval=20,
        ping_timeout=120,
        compression=None,
        max_size=MAX_FRAME_BYTES,
        proxy=None if is_loopback(url) else True,
    )


def _close(stack: ExitStack) -> None:
    with suppress(OSError, ConnectionClosed):
        stack.close()


def websocket_url(url: str) -> str:
    """`http://host:port` as the address of its sessions."""
    return url.rstrip("/").replace("http", "ws", 1) + "/ws"


def is_loopback(url: str) -> bool:
    """True for an address of this machine, which no proxy must see."""
    host = urlsplit(url).hostname or ""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _unwrapped(message: dict[str, Any], wanted: str) -> Any:
    if message["type"] == wanted:
        return message["data"]
    if message["type"] == "error":
        raise _refusal(message["data"])
    raise ValueError(f"a frame of type {message['type']!r} instead of {wanted!r}")


def _observation(reply: dict[str, Any]) -> Observation:
    fields = reply.get("observation") or {}
    outer = {key: reply[key] for key in ("done", "reward", "metadata") if key in reply}
    return Observation.model_validate({**fields, **outer})


def _refusal(data: dict[str, Any]) -> SessionError:
    message, code = str(data["message"]), data["code"]
    if code == "CAPACITY_REACHED":
        return AtCapacity(f"{message}; start the server with more, or train with smaller batches")
    if data.get("reason") == "NOT_RESET":
        return NotReset(message)
    if code in ("EXECUTION_ERROR", "FACTORY_ERROR"):
        return EpisodeFailed(message)
    return ProtocolError(f"{message} (code: {code})")
