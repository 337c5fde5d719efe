"""Room for sessions: never more than the limit, and a queue in front of it."""

from __future__ import annotations

import asyncio
from collections import deque

from agent_env.server.socket import Gone, Socket

MAX_WAIT_S = 60.0
"""The longest that a socket may wait for room, in seconds."""

QUEUE_PER_SLOT = 4
"""How many may wait for each session that may be open."""


class Slots:
    """Counts who has room, who has a claim on some, and who waits. First come, first served."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.active = 0
        self._claims: set[str] = set()
        self._queue: deque[asyncio.Future[None]] = deque()

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

    def claim(self, session_ids: list[str]) -> None:
        """Keep room for these sessions, as far as there is any."""
        self._claims.update(session_ids[: self.limit])

    def give_claims_up(self) -> list[str]:
        """Keep no more room for those that didn't come; returns them."""
        missing = sorted(self._claims)
        self._claims.clear()
        self._hand_out()
        return missing

    def take(self, session_id: str | None = None) -> bool:
        """Take room at once: one's own claim, or what is free if nobody waits for it."""
        if session_id in self._claims:
            self._claims.remove(session_id)
        elif not self.free or self._queue:
            return False
        self.active += 1
        return True

    def queue(self) -> asyncio.Future[None] | None:
        """A place in the queue: done once one has room; cancel it to drop out. None: too long."""
        if len(self._queue) >= QUEUE_PER_SLOT * self.limit:
            return None
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        place.add_done_callback(self._left)
        return place

    def release(self) -> None:
        """Give room back."""
        self.active -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self.free and self._queue:
            place = self._queue.popleft()
            if not place.done():
                self.active += 1
                place.set_result(None)

    def _left(self, place: asyncio.Future[None]) -> None:
        if place.cancelled() and place in self._queue:
            self._queue.remove(place)
            self._hand_out()


async def wait_for_room(slots: Slots, socket: Socket, wait_s: float) -> bool:
    """Whether the socket got room within `wait_s` seconds. Raises Gone when it hung up.

    A frame that comes early is kept for later; it says that the peer is alive.
    """
    place = slots.queue() if wait_s else None
    if place is None:
        return False
    ahead = socket.listen()
    await asyncio.wait({place, ahead}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    if not place.done() and not socket.hung_up:  # too much came early: only time counts
        await asyncio.wait({place}, timeout=wait_s)
    if socket.hung_up and place.done():
        slots.release()
    if socket.hung_up:
        place.cancel()
        raise Gone
    return not place.cancel()
