"""A bound on what a request may send: the same that a frame of a socket has."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_env.types import MAX_FRAME_BYTES

_DROPPED = 4 * MAX_FRAME_BYTES
"""Bytes that are read and dropped before the answer: who is still sending may not see one that
comes with the connection's end."""
_SAID = f"the request's body is too long: {MAX_FRAME_BYTES:,} bytes at most"
_CLOSE = {"Connection": "close"}


class BodyLimit:
    """Answers 413 to a body that says it is too long, or turns out to be; none is kept."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or refuse."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _declared(scope) > MAX_FRAME_BYTES:
            await _drop(receive)
            await JSONResponse({"detail": _SAID}, 413, _CLOSE)(scope, receive, send)
            return
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > MAX_FRAME_BYTES:
                await _drop(receive, message)
                raise HTTPException(413, _SAID, _CLOSE)
            return message

        await self._app(scope, counted, send)


def _declared(scope: Scope) -> int:
    """Content-Length, which the HTTP parser has checked to be a number; 0 where there is none."""
    return int(dict(scope["headers"]).get(b"content-length", b"0"))


async def _drop(receive: Receive, message: Message | None = None) -> None:
    left = _DROPPED
    while left > 0:
        message = message or await receive()
        left -= len(message.get("body", b""))
        if not message.get("more_body"):
            return
        message = None
