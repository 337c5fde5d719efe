"""Room for sessions: never more than the limit, and a queue in front of it.

`Room` is what a server's sessions ask; with several workers the answer comes from another process.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Collection
from typing import Any, Protocol

from agent_env.server.owners import Owner
from agent_env.server.socket import Gone, Socket

MAX_WAIT_S = 60.0
"""The longest that a socket may wait for room, in seconds."""

QUEUE_PER_SLOT = 4
"""How many may wait for each session that may be open."""


class Room(Protocol):
    """Who gives room to sessions."""

    limit: int

    @property
    def active(self) -> int:
        """Sessions that have room."""

    async def enter(self, socket: Socket | None, session_id: str | None, wait_s: float) -> bool:
        """Whether there is room for a session, for which its socket waits so many seconds.

        Raises Gone when the socket hung up meanwhile; then it has no room.
        """

    def seat(self, session_id: str) -> None:
        """The session is live in this process from now on."""

    def release(self, session_id: str | None) -> None:
        """Give a session's room back."""

    def give_claims_up(self) -> list[str]:
        """Keep no more room for the sessions of before that didn't come; returns them."""

    def announce(self, owner: Owner) -> None:
        """A newer run of that owner began in this process."""

    def counts(self) -> dict[str, int]:
        """As `/capacity` says it."""


class Slots:
    """Counts who has room, who has a claim on some, and who waits. First come, first served."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._active = 0
        self._claims: set[str] = set()
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def active(self) -> int:
        """Sessions that have room."""
        return self._active

    @property
    def free(self) -> int:
        """Room that nobody has and nobody has a claim on."""
        return max(0, self.limit - self.active - len(self._claims))

    @property
    def claimed(self) -> int:
        """Room that is kept for sessions of before a restart."""
        return len(self._claims)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._queue)

    def counts(self) -> dict[str, int]:
        """As `/capacity` says it."""
        return {
            "max_sessions": self.limit,
            "active_sessions": self._active,
            "reserved_sessions": self.claimed,
            "waiting": self.waiting,
            "free": self.free,
        }

    def claim(self, session_ids: list[str]) -> list[str]:
        """Keep room for these sessions; returns those for which there is none."""
        self._claims.update(session_ids[: self.limit])
        return session_ids[self.limit :]

    def give_claims_up(self, session_ids: Collection[str] | None = None) -> list[str]:
        """Keep no more room for those that didn't come, by default for none; returns them."""
        missing = sorted(self._claims if session_ids is None else self._claims & set(session_ids))
        self._claims.difference_update(missing)
        self._hand_out()
        return missing

    async def enter(self, socket: Socket | None, session_id: str | None, wait_s: float) -> bool:
        """See Room."""
        if self.take(session_id):
            return True
        place = self.queue() if wait_s and socket is not None else None
        if place is None or socket is None:
            return False
        try:
            entered = await wait_for(place, socket, wait_s)
        except Gone:
            if not place.cancel():
                self.release(None)
            raise
        return entered or not place.cancel()

    def seat(self, session_id: str) -> None:
        """See Room."""

    def announce(self, owner: Owner) -> None:
        """See Room."""

    def exchange(self, count: int, session_ids: Collection[str]) -> None:
        """So many sessions have lost their room at once; keep some for these of them."""
        self._active -= count
        self._claims.update(list(session_ids)[: max(0, self.free)])
        self._hand_out()

    def take(self, session_id: str | None = None) -> bool:
        """Take room at once: one's own claim, or what is free if nobody waits for it."""
        if session_id in self._claims:
            self._claims.remove(session_id)
        elif not self.free or self._queue:
            return False
        self._active += 1
        return True

    def queue(self) -> asyncio.Future[None] | None:
        """A place in the queue: done once one has room; cancel it to drop out. None: too long."""
        if len(self._queue) >= QUEUE_PER_SLOT * self.limit:
            return None
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        place.add_done_callback(self._left)
        return place

    def release(self, session_id: str | None) -> None:  # noqa: ARG002 - only workers say whose
        """See Room."""
        self._active -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self.free and self._queue:
            place = self._queue.popleft()
            if not place.done():
                self._active += 1
                place.set_result(None)

    def _left(self, place: asyncio.Future[None]) -> None:
        if place.cancelled() and place in self._queue:
            self._queue.remove(place)
            self._hand_out()


async def wait_for(place: asyncio.Future[Any], socket: Socket, wait_s: float) -> bool:
    """Whether the place came in time. Raises Gone when the socket hung up.

    A frame that comes early is kept for later; it says that the peer is alive.
    """
    ahead = socket.listen()
    began = time.monotonic()
    await asyncio.wait({place, ahead}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    left_s = wait_s - (time.monotonic() - began)
    if not place.done() and not socket.hung_up and left_s > 0:  # too much came early to hear more
        await asyncio.wait({place}, timeout=left_s)
    if socket.hung_up:
        raise Gone
    return place.done()
