"""Room for a worker's sessions, asked of the front."""

from __future__ import annotations

import asyncio
from itertools import count

from agent_env.server.channel import Channel, Message
from agent_env.server.owners import Owner
from agent_env.server.slots import wait_for
from agent_env.server.socket import Gone, Socket

MARGIN_S = 5.0
"""How much later than the front a worker gives up waiting, so that the front decides."""


class RemoteSlots:
    """A Room; the front counts, so that no two workers give the same room away."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.channel: Channel | None = None
        self._active = 0
        self._tickets = count(1)
        self._places: dict[int, asyncio.Future[bool]] = {}

    @property
    def active(self) -> int:
        """Sessions of the whole server, when the front last said so."""
        return self._active

    async def enter(self, socket: Socket | None, session_id: str | None, wait_s: float) -> bool:
        """See Room."""
        ticket = next(self._tickets)
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._places[ticket] = place
        self._tell({"enter": ticket, "id": session_id, "wait_s": wait_s})
        if socket is None or not wait_s:
            return await place
        try:
            return await wait_for(place, socket, wait_s + MARGIN_S) and place.result()
        except Gone:
            if not place.cancel() and place.result():
                self.release(None)
            raise
        finally:
            if place.cancelled() or place.cancel():
                self._tell({"drop": ticket})

    def answered(self, message: Message) -> None:
        """What the front said about a ticket; room that nobody wants any more goes back."""
        place = self._places.pop(message["answer"])
        self._active = message["active"]
        if not place.done():
            place.set_result(message["ok"])
        elif message["ok"]:
            self.release(None)

    def seat(self, session_id: str) -> None:
        """See Room."""
        self._tell({"seat": session_id})

    def announce(self, owner: Owner) -> None:
        """The front tells the other workers."""
        self._tell({"owner": owner.name, "run": owner.run})

    def release(self, session_id: str | None) -> None:
        """See Room."""
        self._tell({"release": session_id})

    def give_claims_up(self) -> list[str]:
        """The front keeps them."""
        return []

    def counts(self) -> dict[str, int]:
        """What a worker knows; `/capacity` is answered by the front."""
        return {"max_sessions": self.limit, "active_sessions": self._active}

    def _tell(self, message: Message) -> None:
        if self.channel is not None:
            self.channel.tell(message)
