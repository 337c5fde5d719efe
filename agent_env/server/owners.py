"""Whose sessions are whose: of one owner only the newest run has any.

A trainer that was killed can't say goodbye, and the next run of its job needs the room. So a
client may name its owner and its run, a number that grows from one run to the next. The first
request of a newer run ends the sessions of the older ones, which are turned away from then on.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

HEADER = b"agent-env-owner"
MOST_OWNERS = 1024
"""So many owners' newest runs are remembered, those heard of last."""

_SHAPE = re.compile(rb"([!-~]{1,600})/(\d{1,18})")


@dataclass(frozen=True, slots=True)
class Owner:
    """Who has sessions, and which of its runs that is."""

    name: str
    run: int

    def replaces(self, other: Owner | None) -> bool:
        """Whether the other is an older run of the same owner."""
        return other is not None and other.name == self.name and other.run < self.run


class Owners:
    """The newest run of each owner."""

    def __init__(self) -> None:
        self._newest: OrderedDict[str, int] = OrderedDict()

    def __iter__(self) -> Iterator[Owner]:
        return (Owner(name, run) for name, run in list(self._newest.items()))

    def admits(self, owner: Owner) -> bool:
        """False for a run that a newer one has replaced."""
        return owner.run >= self._newest.get(owner.name, 0)

    def learns(self, owner: Owner) -> bool:
        """True if it is a run newer than all before; it is remembered."""
        if owner.run <= self._newest.get(owner.name, -1):
            return False
        self._newest[owner.name] = owner.run
        self._newest.move_to_end(owner.name)
        if len(self._newest) > MOST_OWNERS:
            self._newest.popitem(last=False)
        return True


class Host(Protocol):
    """Who ends sessions."""

    def admit(self, owner: Owner) -> bool:
        """End what older runs of that owner have; False if it is itself an older one."""


class Gate:
    """An ASGI app in front of another: answers 409 to an older run, a websocket before its
    handshake, and 400 to a header that is none."""

    def __init__(self, app: ASGIApp, host: Host) -> None:
        self._app = app
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, with the owner in the scope, or refuse."""
        given = None if scope["type"] == "lifespan" else dict(scope["headers"]).get(HEADER)
        if given is None:
            await self._app(scope, receive, send)
            return
        shaped = _SHAPE.fullmatch(given)
        if shaped is None:
            await _refusal(400, "agent-env-owner is NAME/RUN, RUN a number")(scope, receive, send)
            return
        owner = Owner(shaped[1].decode(), int(shaped[2]))
        if not self._host.admit(owner):
            said = f"a newer run of {owner.name} has taken the sessions of this one"
            await _refusal(409, said)(scope, receive, send)
            return
        await self._app({**scope, "owner": owner}, receive, send)


def _refusal(status: int, detail: str) -> JSONResponse:
    return JSONResponse({"detail": detail}, status)
