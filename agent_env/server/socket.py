"""One websocket over bare ASGI: what a session needs of it and no more, since each step pays."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

from starlette.types import Receive, Scope, Send

from agent_env.server.owners import Owner

GOING_AWAY = 1012
"""Close code "service restart": come back."""
IDLE = 4408
"""Close code: nothing was sent for the whole lease."""
FENCED = 4409
"""Close code: the session went on over another socket."""
REPLACED = 4410
"""Close code: a newer run of the same owner began."""


_AHEAD = 2
"""A client has one frame in flight: what comes beyond that isn't read before its turn."""


class Gone(Exception):
    """The peer has hung up, or we have."""


class Socket:
    """Text in, text out; sending to a peer that is gone is no error, reading from it is."""

    __slots__ = ("_ahead", "_messages", "_receive", "_send", "closed", "heard", "owner", "query")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._ahead: asyncio.Task[None] | None = None
        self._messages: deque[Any] = deque()
        self.query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        self.owner: Owner | None = scope.get("owner")
        self.closed = False
        self.heard = 0.0

    async def accept(self) -> None:
        """Finish the handshake. Raises Gone."""
        if (await self._receive())["type"] != "websocket.connect":
            raise Gone
        await self._send({"type": "websocket.accept"})

    async def deny(self, status: int, text: str, headers: dict[str, str]) -> None:
        """Answer the handshake with an HTTP status."""
        await self._receive()
        body = text.encode()
        pairs = [(k.lower().encode(), v.encode()) for k, v in headers.items()]
        pairs += [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
        start = {"type": "websocket.http.response.start", "status": status, "headers": pairs}
        await self._send(start)
        await self._send({"type": "websocket.http.response.body", "body": body})
        # Uvicorn takes a return before it has closed the connection for a forgotten handshake.
        await self._receive()
        await asyncio.sleep(0)

    async def next(self) -> str | None:
        """The next frame's text; None for a binary one. Raises Gone."""
        if self._ahead is not None:
            self.forget()
        message = self._messages.popleft() if self._messages else await self._receive()
        if message["type"] == "websocket.disconnect" or self.closed:
            self.closed = True
            raise Gone
        text: str | None = message.get("text")
        return text

    def listen(self) -> asyncio.Task[None]:
        """Read ahead, for `next` to return later; done when there is nothing more to hear."""
        if self._ahead is None:
            self._ahead = asyncio.ensure_future(self._read_ahead())
        return self._ahead

    @property
    def hung_up(self) -> bool:
        """Whether `listen` has heard the end."""
        return bool(self._messages) and self._messages[-1]["type"] == "websocket.disconnect"

    async def _read_ahead(self) -> None:
        while len(self._messages) < _AHEAD and not self.hung_up:
            self._messages.append(await self._receive())

    async def send(self, text: str) -> None:
        """Nothing happens when the peer is gone; `next` will say so."""
        if not self.closed:
            with suppress(OSError):
                await self._send({"type": "websocket.send", "text": text})

    async def close(self, code: int = 1000) -> None:
        """Say goodbye; safe to call twice."""
        if not self.closed:
            self.closed = True
            with suppress(OSError, RuntimeError):
                await self._send({"type": "websocket.close", "code": code, "reason": ""})

    async def turn_away(self, frame: str, code: int = 1000) -> None:
        """Say why, then close."""
        await self.send(frame)
        # A client speaks first: closing now would break its send before it has read the reason.
        with suppress(TimeoutError, Gone):
            async with asyncio.timeout(1.0):
                await self.next()
        await self.close(code)

    def forget(self) -> None:
        """Stop listening ahead; what was heard is kept."""
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead = None
