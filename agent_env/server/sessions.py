"""Sessions: one per socket, never more than the limit, each running its task off the event loop.

A slot is given back only once the step that holds it has really ended, so a client that gave up
on a slow step can't make the server run more than it may.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from agent_env.server.episode import Episode
from agent_env.server.protocol import (
    CallTool,
    Close,
    FrameError,
    ListTools,
    Reset,
    State,
    error_frame,
    observation_frame,
    parse_frame,
    state_frame,
)
from agent_env.server.served import Served

_log = logging.getLogger(__name__)

MAX_THREADS = 32
RETRY_AFTER_S = 1.0
GOING_AWAY = 1012
"""Close code "service restart": come back."""


class Sessions:
    """Every open session of one server."""

    def __init__(self, served: Served, max_sessions: int) -> None:
        self._served = served
        self.max_sessions = max_sessions
        self.active = 0
        self.busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.stopping = False
        self._threads = ThreadPoolExecutor(min(max_sessions, MAX_THREADS), "episode")

    async def attend(self, socket: WebSocket) -> None:
        """Serve one socket from its handshake to its end."""
        if self.stopping:
            headers = {"Retry-After": f"{RETRY_AFTER_S:.0f}"}
            await socket.send_denial_response(
                PlainTextResponse("the server is stopping", 503, headers)
            )
            return
        await socket.accept()
        with suppress(WebSocketDisconnect):
            await self._admit(socket)

    async def drain(self, grace_s: float) -> None:
        """Take no new session or step; let the running steps end within the grace time."""
        self.stopping = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), grace_s)

    def close(self) -> None:
        """Leave the threads; one that hangs in a task doesn't hold up the end."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _admit(self, socket: WebSocket) -> None:
        if "session_id" in socket.query_params:
            name = socket.query_params["session_id"]
            frame = error_frame("SESSION_ERROR", f"there is no session {name!r} to go on with")
            await self._turn_away(socket, frame)
        elif self.active >= self.max_sessions:
            await self._turn_away(socket, self._full())
        else:
            self.active += 1
            try:
                await self._serve(socket, Episode(self._served))
            finally:
                self.active -= 1

    def _full(self) -> str:
        return error_frame(
            "CAPACITY_REACHED",
            f"all {self.max_sessions} sessions are taken",
            active_sessions=self.active,
            max_sessions=self.max_sessions,
            retry_after_s=RETRY_AFTER_S,
        )

    @staticmethod
    async def _turn_away(socket: WebSocket, frame: str) -> None:
        await socket.send_text(frame)
        # A client speaks first: closing now would break its send before it has read the reason.
        with suppress(TimeoutError):
            await asyncio.wait_for(socket.receive(), 1.0)
        await socket.close()

    async def _serve(self, socket: WebSocket, episode: Episode) -> None:
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if self.stopping:
                await socket.close(GOING_AWAY)
                return
            reply = await self._reply(episode, message.get("text"))
            if reply is None:
                await socket.close()
                return
            await socket.send_text(reply)

    async def _reply(self, episode: Episode, text: str | None) -> str | None:
        try:
            frame = parse_frame(text)
            if isinstance(frame, Close):
                return None
            if isinstance(frame, State):
                return state_frame(episode.state)
            return await self._in_thread(episode, frame)
        except FrameError as error:
            return error.frame()
        except Exception as error:
            _log.exception("a frame failed")
            return error_frame("EXECUTION_ERROR", f"{type(error).__name__}: {error}")

    async def _in_thread(self, episode: Episode, frame: Reset | ListTools | CallTool) -> str:
        self.busy += 1
        self._idle.clear()
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, _perform, episode, frame)
        finally:
            self.busy -= 1
            if not self.busy:
                self._idle.set()


def _perform(episode: Episode, frame: Reset | ListTools | CallTool) -> str:
    done = episode.reset(frame) if isinstance(frame, Reset) else episode.step(frame)
    return observation_frame(done)
