"""All sessions of a server: who gets in, over which socket, and what becomes of those left alone.

A slot is given back only once the step that holds it has really ended, so a client that gave up
on a slow step can't make the server run more than it may.
"""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from contextlib import suppress
from weakref import WeakValueDictionary

from starlette.types import Receive, Scope, Send

from agent_env.server.entry import Entry, read_entry
from agent_env.server.journal import Journals
from agent_env.server.protocol import (
    SESSION_ID,
    FrameError,
    Reset,
    State,
    Step,
    error_frame,
    parse_frame,
    state_frame,
)
from agent_env.server.rebuild import Lost
from agent_env.server.served import Served
from agent_env.server.session import Fenced, Session, Work
from agent_env.server.slots import Slots
from agent_env.server.socket import FENCED, GOING_AWAY, Gone, Socket

_log = logging.getLogger(__name__)

HOLD_S = 10.0
"""How long a session without a socket keeps its slot, in seconds."""
RESERVE_S = 30.0
"""How long after a restart room is kept for the sessions of before, in seconds."""
RETRY_AFTER_S = 1.0


class Sessions:
    """Every session of one server; an ASGI app for `/ws`."""

    def __init__(
        self, served: Served, max_sessions: int, journals: Journals | None = None
    ) -> None:
        self._work = Work(served)
        self.slots = Slots(max_sessions)
        self.stopping = False
        self._journals = journals
        self._live: dict[str, Session] = {}
        self._held: dict[Session, asyncio.TimerHandle] = {}
        self._gates: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        if journals is not None:
            self.slots.claim(journals.living())

    @property
    def journaled(self) -> bool:
        """Whether another process can go on with these sessions."""
        return self._journals is not None

    @property
    def busy(self) -> int:
        """Steps that a thread is at."""
        return self._work.busy

    def begin(self) -> None:
        """Call once the event loop runs: claims that nobody takes are given up in the end."""
        if self._journals is not None:
            asyncio.get_running_loop().call_later(RESERVE_S, self._give_claims_up)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one socket from its handshake to its end."""
        socket = Socket(scope, receive, send)
        if self.stopping:
            headers = {"Retry-After": f"{RETRY_AFTER_S:.0f}"}
            await socket.deny(503, "the server is stopping", headers)
            return
        try:
            await socket.accept()
            await self._attend(socket)
        except Gone:
            pass
        finally:
            socket.forget()

    async def drain(self, grace_s: float) -> None:
        """Take no new session or step; let the running steps end within the grace time."""
        self.stopping = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._work.idle.wait(), grace_s)
        for session in self._live.values():
            if session.journal is not None:
                session.journal.sync()

    def close(self) -> None:
        """Leave the threads; one that hangs in a task doesn't hold up the end."""
        for timer in self._held.values():
            timer.cancel()
        self._work.pool.close()

    async def _attend(self, socket: Socket) -> None:
        try:
            session = await self._enter(socket, read_entry(socket.query))
        except (FrameError, Lost) as refusal:
            await socket.turn_away(refusal.frame())
            return
        try:
            await self._serve(socket, session)
        finally:
            if session.holder is socket:
                session.holder = None
                self._left_alone(session)

    async def _enter(self, socket: Socket, entry: Entry) -> Session:
        """The session that the socket asks for, held by it. Raises FrameError, Lost, Gone."""
        if entry.session_id is None:
            await self._room(socket, entry)
            session = Session(None, self._work)
        else:
            # One at a time: two sockets of one session must not both rebuild it.
            gate = self._gates.setdefault(entry.session_id, asyncio.Lock())
            async with gate:
                session = self._live.get(entry.session_id) or await self._recalled(socket, entry)
        older, session.holder = session.holder, socket
        if timer := self._held.pop(session, None):
            timer.cancel()
        if isinstance(older, Socket):
            await older.close(FENCED)
        return session

    async def _recalled(self, socket: Socket, entry: Entry) -> Session:
        """A session that isn't live: from its journal, or new where the socket agrees to that."""
        assert entry.session_id is not None  # noqa: S101 - asked before
        journaled = self._journals is not None and self._journals.has(entry.session_id)
        if not journaled and not entry.open:
            message = f"there is no session {entry.session_id!r} to go on with"
            raise Lost("SESSION_LOST", message)
        await self._room(socket, entry)
        session = Session(entry.session_id, self._work)
        try:
            if journaled and self._journals is not None:
                await session.rebuild(self._journals.file(entry.session_id))
        except BaseException as error:
            self.slots.release()
            if isinstance(error, Lost):
                self._bury(session, error)
            raise
        if self._journals is not None and session.journal is None:
            session.journal = self._journals.file(entry.session_id)
        self._live[entry.session_id] = session
        return session

    def _bury(self, session: Session, lost: Lost) -> None:
        assert session.id is not None  # noqa: S101 - only a session with an id is rebuilt
        _log.warning("session %s: %s: %s", session.id, lost.reason, lost.message)
        session.bury(lost.reason)
        if self._journals is not None:
            self._journals.leave(session.id)

    async def _room(self, socket: Socket, entry: Entry) -> None:
        """A slot for the socket, waited for as it asks. Raises FrameError when full, Gone."""
        if self.slots.take(entry.session_id):
            return
        place = self.slots.queue() if entry.wait_s else None
        if place is None:
            raise self._full()
        try:
            heard = False
            deadline = asyncio.get_running_loop().time() + entry.wait_s
            while not place.done() and not heard:
                left = deadline - asyncio.get_running_loop().time()
                ahead = socket.listen()
                # A frame that came early says that the peer is alive: then only time counts.
                waits = {place} if ahead.done() and not socket.hung_up else {place, ahead}
                await asyncio.wait(waits, timeout=max(0.0, left), return_when="FIRST_COMPLETED")
                heard = socket.hung_up or left <= 0
        finally:
            if not place.done():
                place.cancel()
        if place.cancelled():
            if socket.hung_up:
                raise Gone
            raise self._full()
        if socket.hung_up:
            self.slots.release()
            raise Gone

    def _full(self) -> FrameError:
        return FrameError(
            "CAPACITY_REACHED",
            f"all {self.slots.limit} sessions are taken",
            active_sessions=self.slots.active,
            max_sessions=self.slots.limit,
            retry_after_s=RETRY_AFTER_S,
        )

    async def _serve(self, socket: Socket, session: Session) -> None:
        while True:
            text = await socket.next()
            if self.stopping:
                await socket.close(GOING_AWAY)
                return
            try:
                reply = await self._reply(session, text, socket)
            except Fenced:
                return
            if reply is None:
                self._end(session)
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
                self._name(session, frame)
                return await session.answer(frame, socket)
            return state_frame(session.state()) if isinstance(frame, State) else None
        except FrameError as error:
            return error.frame()
        except Fenced:
            raise
        except Exception as error:
            _log.exception("a frame failed")
            said = f"{type(error).__name__}: {error}"
            return error_frame("EXECUTION_ERROR", said, reason="ENV_ERROR")

    def _name(self, session: Session, frame: Reset) -> None:
        """The first reset's episode id names the session, where it can."""
        if session.id is not None:
            return
        wish = frame.episode_id or ""
        taken = wish in self._live or (self._journals is not None and self._journals_have(wish))
        if re.fullmatch(SESSION_ID, wish) and not taken:
            session.id, session.known = wish, True
        else:
            session.id = uuid.uuid4().hex
        self._live[session.id] = session
        if self._journals is not None:
            session.journal = self._journals.file(session.id)

    def _journals_have(self, wish: str) -> bool:
        assert self._journals is not None  # noqa: S101 - asked before
        return re.fullmatch(SESSION_ID, wish) is not None and self._journals.has(wish)

    def _left_alone(self, session: Session) -> None:
        """Its socket is gone: hold it for a client that may come back, or end it."""
        if session.known and session.episode_id is not None:
            loop = asyncio.get_running_loop()
            self._held[session] = loop.call_later(HOLD_S, self._give_up, session)
        else:
            self._end(session)

    def _give_up(self, session: Session) -> None:
        """The hold time is over: give its slot back; only the journal can bring it back."""
        self._held.pop(session, None)
        self._free(session, keep=True)

    def _end(self, session: Session) -> None:
        """The client is done with it."""
        session.holder = None
        self._free(session, keep=False)

    def _free(self, session: Session, *, keep: bool) -> None:
        if session.running is not None:
            session.running.add_done_callback(lambda _: self._free(session, keep=keep))
            return
        if session.holder is not None:  # it was gone on with while its last step ran
            return
        if session.id is None or self._live.pop(session.id, None) is not None:
            self.slots.release()
            self._put_away(session, keep=keep)

    def _put_away(self, session: Session, *, keep: bool) -> None:
        if session.journal is None or session.id is None or self._journals is None:
            return
        if keep:
            session.journal.close()
            self._journals.leave(session.id)
        else:
            session.journal.remove()

    def _give_claims_up(self) -> None:
        for session_id in self.slots.give_claims_up():
            if self._journals is not None:
                self._journals.leave(session_id)
