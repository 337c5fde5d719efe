"""The websockets: frames in, replies out, for as long as the client and the lease last."""

from __future__ import annotations

import asyncio
import logging

from starlette.types import Receive, Scope, Send

from agent_env.server import mcp
from agent_env.server.entry import read_entry
from agent_env.server.protocol import (
    FrameError,
    Reset,
    Rpc,
    State,
    Step,
    dump,
    error_frame,
    parse_frame,
    state_frame,
)
from agent_env.server.rebuild import Lost
from agent_env.server.session import Fenced, Session
from agent_env.server.sessions import RETRY_AFTER_S, Sessions
from agent_env.server.socket import GOING_AWAY, IDLE, Gone, Socket

_log = logging.getLogger(__name__)

SWEEPS_PER_LEASE = 8


class Away:
    """An ASGI app that says before a websocket's handshake: come back."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse."""
        headers = {"Retry-After": f"{RETRY_AFTER_S:.0f}", "Connection": "close"}
        await Socket(scope, receive, send).deny(503, "the server is stopping", headers)


class Serving:
    """An ASGI app for `WS /ws`, and for `WS /mcp`, which is JSON-RPC without the frames."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._sockets: dict[Socket, Session] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Call once the event loop runs: silent sockets are looked for from then on."""
        self._sweep()

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one socket from its handshake to its end."""
        socket = Socket(scope, receive, send)
        if self._sessions.stopping:
            await Away()(scope, receive, send)
            return
        try:
            await socket.accept()
            await self._attend(socket, rpc=scope["path"].endswith("/mcp"))
        except Gone:
            pass
        finally:
            socket.forget()

    async def _attend(self, socket: Socket, *, rpc: bool) -> None:
        try:
            session = await self._sessions.enter(socket, read_entry(socket.query))
        except (FrameError, Lost) as refusal:
            await socket.turn_away(refusal.frame())
            return
        self._sockets[socket] = session
        try:
            await self._serve(socket, session, rpc=rpc)
        except Fenced:
            pass
        except FrameError as refusal:
            await socket.turn_away(refusal.frame())
        finally:
            del self._sockets[socket]
            if session.holder is socket:
                self._sessions.leave(session)

    async def _serve(self, socket: Socket, session: Session, *, rpc: bool) -> None:
        clock, reply_to = asyncio.get_running_loop().time, self._rpc if rpc else self._reply
        if rpc and not session.is_reset:
            self._sessions.name(session, None)
            await session.answer(Reset(), socket)
        while True:
            socket.heard = clock()
            text = await socket.next()
            if self._sessions.stopping:
                await socket.close(GOING_AWAY)
                return
            reply = await reply_to(session, text, socket)
            if reply is None:
                self._sessions.end(session)
                await socket.close()
                return
            await socket.send(reply)

    async def _reply(self, session: Session, text: str | None, socket: Socket) -> str | None:
        """What to send back; None ends the session. Raises Fenced."""
        try:
            frame = parse_frame(text)
            if isinstance(frame, Step):
                session.known = session.known or frame.seq is not None
                return session.answer_now(frame) or await session.answer(frame, socket)
            if isinstance(frame, Reset):
                self._sessions.name(session, frame.episode_id)
                return await session.answer(frame, socket)
            if isinstance(frame, Rpc):
                methods = mcp.tool_methods(session, socket)
                reply = await mcp.answer(frame.request, methods)
                return dump({"type": "mcp", "data": reply})
            return state_frame(session.state()) if isinstance(frame, State) else None
        except FrameError as error:
            return error.frame()
        except Fenced:
            raise
        except Exception as error:
            _log.exception("a frame failed")
            said = f"{type(error).__name__}: {error}"
            return error_frame("EXECUTION_ERROR", said, reason="ENV_ERROR")

    async def _rpc(self, session: Session, text: str | None, socket: Socket) -> str:
        return dump(await mcp.answer_text(text or "", mcp.tool_methods(session, socket)))

    def _sweep(self) -> None:
        """Close the sockets that were silent for the whole lease."""
        loop, lease_s = asyncio.get_running_loop(), self._sessions.times.lease_s
        for socket, session in self._sockets.items():
            if loop.time() - socket.heard > lease_s and session.running is None:
                task = loop.create_task(socket.close(IDLE))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
                if session.holder is socket:
                    self._sessions.give_up(session)
        self._timer = loop.call_later(lease_s / SWEEPS_PER_LEASE, self._sweep)
