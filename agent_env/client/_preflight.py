"""Is there room for a batch? Asked before a model is loaded: finding out later costs more."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from agent_env.client import _http
from agent_env.client._http import NoSuchPath
from agent_env.client._site import Site
from agent_env.errors import AtCapacity, ProtocolError

HELD_S = 12.0
"""How long to wait for the slots of a trainer that died: a server holds them for ten seconds."""
_LOOK_EVERY_S = 0.25


@dataclass(frozen=True)
class Room:
    """A server's sessions, counted."""

    most: int
    taken: int

    @classmethod
    def read(cls, told: Any) -> Room:
        """From `/capacity`. Raises ProtocolError."""
        try:
            return cls(most=int(told["max_sessions"]), taken=int(told["active_sessions"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"/capacity answers nothing of ours: {error!r}") from error

    def lacking(self, wanted: int, own: int) -> str | None:
        """What stands in the way of so many sessions, `own` of which are open already."""
        if wanted > self.most:
            return (
                f"{wanted} rollouts at once need as many sessions, and the server has {self.most}:"
                f" start it with --max-sessions {wanted} (in Python max_sessions={wanted}), or use"
                " smaller batches"
            )
        others = self.taken - own
        if others + wanted > self.most:
            return (
                f"{wanted} rollouts at once need as many sessions, and {others} of the server's"
                f" {self.most} are taken by others: stop those, or start the server with"
                f" --max-sessions {others + wanted}"
            )
        return None


def check(site: Site, sessions: int) -> None:
    """Raises AtCapacity, and what a request raises. A stock server tells no capacity."""
    deadline = time.monotonic() + HELD_S
    while True:
        try:
            room = Room.read(_http.ask(site.address, "GET", "/capacity"))
        except NoSuchPath:
            _http.ask(site.address, "GET", "/health")
            return
        lacking = room.lacking(sessions, site.connections)
        if lacking is None:
            return
        if sessions > room.most or time.monotonic() >= deadline:
            raise AtCapacity(lacking, most=room.most if sessions > room.most else None)
        time.sleep(_LOOK_EVERY_S)
