"""All sessions of a server: who gets in, and what becomes of those left alone.

A slot is given back only once the step that holds it has really ended, so a client that gave up
on a slow step can't make the server run more than it may.
"""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakValueDictionary

from agent_env.server.entry import Entry
from agent_env.server.journal import Journals
from agent_env.server.owners import Owner, Owners
from agent_env.server.protocol import SESSION_ID, FrameError
from agent_env.server.rebuild import Lost
from agent_env.server.served import Served
from agent_env.server.session import Session
from agent_env.server.slots import Room
from agent_env.server.socket import FENCED, REPLACED, Socket
from agent_env.server.work import Work

_log = logging.getLogger(__name__)

RETRY_AFTER_S = 1.0


@dataclass(frozen=True)
class Times:
    """How long the server waits for clients, in seconds; others only in tests."""

    hold_s: float = 10.0
    """A session without a socket keeps its slot."""
    reserve_s: float = 30.0
    """After a restart room is kept for the sessions of before."""
    lease_s: float = 3600.0
    """A socket may send nothing."""


class Sessions:
    """Every session of one server."""

    def __init__(
        self,
        served: Served,
        room: Room,
        journals: Journals | None = None,
        times: Times = Times(),
        server: str | None = None,
    ) -> None:
        """`server` names the run of the server that this process is a worker of."""
        self.served = served
        self.times = times
        self.slots = room
        self.stopping = False
        self._work = Work(served, server)
        self._journals = journals
        self._live: dict[str, Session] = {}
        self._held: dict[Session, asyncio.TimerHandle] = {}
        self._gates: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._claims_timer: asyncio.TimerHandle | None = None
        self._owners = Owners()
        self._closing: set[asyncio.Future[None]] = set()

    @property
    def journaled(self) -> bool:
        """Whether sessions outlive the process."""
        return self._journals is not None

    @property
    def busy(self) -> int:
        """Steps that a thread is at."""
        return self._work.busy

    def capacity(self) -> dict[str, int]:
        """Counts of sessions by what became of them."""
        return self.slots.counts()

    def admit(self, owner: Owner) -> bool:
        """End the sessions of its older runs, with their journals; False if it is older itself."""
        if self._owners.learns(owner):
            self.slots.announce(owner)
            for session in [one for one in self._live.values() if owner.replaces(one.owner)]:
                self._replace(session)
        return self._owners.admits(owner)

    def begin(self) -> None:
        """Call once the event loop runs: in the end, claims that nobody takes are given up."""
        loop = asyncio.get_running_loop()
        self._work.watchdog.begin()
        self._claims_timer = loop.call_later(self.times.reserve_s, self._give_claims_up)

    def watch(self, told: Callable[[int], None], stuck: Callable[[], None]) -> None:
        """Tell how many steps threads are at, and of one that is long over its deadline."""
        self._work.told, self._work.stuck = told, stuck
        self._work.watchdog.stuck = stuck

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
        if self._claims_timer is not None:
            self._claims_timer.cancel()
        for timer in self._held.values():
            timer.cancel()
        self._work.pool.close()
        self._work.watchdog.close()

    async def enter(self, socket: Socket, entry: Entry) -> Session:
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
        self._let_go(session)
        session.owner = socket.owner or session.owner
        if socket.owner is not None and not self._owners.admits(socket.owner):
            self.end(session)
            raise Lost("SESSION_LOST", "a newer run of the same owner began meanwhile")
        if isinstance(older, Socket):
            await older.close(FENCED)
        return session

    async def create(self) -> Session:
        """A session that no socket has; keep it with `hold`. Raises FrameError when full."""
        if not await self.slots.enter(None, None, 0.0):
            raise self._full()
        session = Session(None, self._work)
        session.known = True
        self.name(session, None)
        return session

    def find(self, session_id: str) -> Session | None:
        """A live session."""
        return self._live.get(session_id)

    def name(self, session: Session, wish: str | None) -> None:
        """The first reset's episode id names the session, where it can."""
        if session.id is None:
            if wish and re.fullmatch(SESSION_ID, wish) and not self._is_taken(wish):
                session.id, session.known = wish, True
            else:
                session.id = uuid.uuid4().hex
            self._live[session.id] = session
            self.slots.seat(session.id)
        # Nobody would come back for the others, but room would be kept for them.
        if session.known and session.journal is None and self._journals is not None:
            session.journal = self._journals.file(session.id)

    def leave(self, session: Session) -> None:
        """Its socket is gone: hold it for a client that may come back, or end it."""
        session.holder = None
        written = session.journal is not None and session.journal.size > 0
        if session.known and (session.is_reset or written):
            self.hold(session, self.times.hold_s)
        else:
            self.end(session)

    def hold(self, session: Session, seconds: float) -> None:
        """Keep its slot that long, unless it is gone on with."""
        self._let_go(session)
        loop = asyncio.get_running_loop()
        self._held[session] = loop.call_later(seconds, self.give_up, session)

    def give_up(self, session: Session) -> None:
        """Give its slot back; only the journal can bring it back."""
        session.holder = None
        self._let_go(session)
        self._free(session, keep=session.known)

    def end(self, session: Session) -> None:
        """The client is done with it."""
        session.holder = None
        self._let_go(session)
        self._free(session, keep=False)

    def _replace(self, session: Session) -> None:
        holder = session.holder
        self.end(session)
        if isinstance(holder, Socket):
            closing = asyncio.ensure_future(holder.close(REPLACED))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

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
            if self._journals is not None:
                file = self._journals.file(entry.session_id)
                if journaled:
                    await session.rebuild(file)
                session.journal = file
        except BaseException as error:
            self.slots.release(entry.session_id)
            if isinstance(error, Lost):
                self._bury(session, error)
            raise
        self._live[entry.session_id] = session
        self.slots.seat(entry.session_id)
        return session

    def _bury(self, session: Session, lost: Lost) -> None:
        assert session.id is not None  # noqa: S101 - only a session with an id is rebuilt
        _log.warning("session %s: %s: %s", session.id, lost.reason, lost.message)
        session.bury(lost.reason)
        if self._journals is not None:
            self._journals.leave(session.id)

    async def _room(self, socket: Socket, entry: Entry) -> None:
        """A slot for the socket, waited for as it asks. Raises FrameError when full, Gone."""
        if not await self.slots.enter(socket, entry.session_id, entry.wait_s):
            raise self._full()

    def _full(self) -> FrameError:
        return FrameError(
            "CAPACITY_REACHED",
            f"all {self.slots.limit} sessions are taken",
            active_sessions=self.slots.active,
            max_sessions=self.slots.limit,
            retry_after_s=RETRY_AFTER_S,
        )

    def _is_taken(self, wish: str) -> bool:
        return wish in self._live or (self._journals is not None and self._journals.has(wish))

    def _let_go(self, session: Session) -> None:
        if timer := self._held.pop(session, None):
            timer.cancel()

    def _free(self, session: Session, *, keep: bool) -> None:
        if session.running is not None:
            session.running.add_done_callback(lambda _: self._free(session, keep=keep))
            return
        if session.holder is not None:  # it was gone on with while its last step ran
            return
        self._let_go(session)
        # Another may be live by now under the same id.
        if session.id is None or self._live.get(session.id) is session:
            self._live.pop(session.id or "", None)
            self.slots.release(session.id)
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
