"""What the sessions of one server know together: whether it answers, and who waits for it.

Trainers reset one environment after the other. So all sessions of a process that speak to one
address share their waits: the first one waits, the rest reuse its verdict, and only who has sat
through a wait begins another.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakSet, WeakValueDictionary

from agent_env.client._dial import CLOSE_TIMEOUT_S, Address


@dataclass(eq=False)
class Wait:
    """One wait for one server, shared by the sessions that need it."""

    began: float
    vain: bool = False
    """A reply didn't come in all the time it had: nobody else need try for as long."""

    def left(self, budget_s: float, now: float) -> float:
        """Seconds until it is over for who gives it that long."""
        return 0.0 if self.vain else self.began + budget_s - now


@dataclass
class Visitor:
    """What a session has gone through: the waits it took part in, and their time in seconds."""

    sat_through: dict[type, Wait] = field(default_factory=dict)
    waited_s: float = 0.0


class Waits:
    """The waits for one address that are under way in this process, by what they wait out."""

    def __init__(self) -> None:
        self._waits: dict[type, Wait] = {}
        self._lock = threading.Lock()

    def join(
        self,
        visitor: Visitor,
        kind: type,
        budget_s: float,
        now: float,
        *,
        began: float | None = None,
        vain: bool = False,
    ) -> Wait:
        """The wait that is under way, or a new one for who has already sat through the last."""
        with self._lock:
            wait = self._current(visitor, kind, budget_s, now)
            if wait is None:
                wait = self._waits[kind] = Wait(now if began is None else began)
            wait.vain = wait.vain or vain
            visitor.sat_through[kind] = wait
            return wait

    def left(self, visitor: Visitor, kind: type, budget_s: float, now: float) -> float:
        """How long that visitor may still wait, before anything has failed."""
        with self._lock:
            wait = self._current(visitor, kind, budget_s, now)
            return budget_s if wait is None else max(0.0, wait.left(budget_s, now))

    def given_up(self, visitor: Visitor, kind: type, budget_s: float, now: float) -> bool:
        """True while another session's wait has just been in vain."""
        with self._lock:
            wait = self._current(visitor, kind, budget_s, now)
            return wait is not None and wait.left(budget_s, now) <= 0

    def over(self, *kinds: type) -> None:
        """The server answered: the next failure begins a new wait."""
        if self._waits:
            with self._lock:
                for kind in kinds:
                    self._waits.pop(kind, None)

    def _current(self, visitor: Visitor, kind: type, budget_s: float, now: float) -> Wait | None:
        wait = self._waits.get(kind)
        if wait is None:
            return None
        finished = wait.left(budget_s, now) <= 0 and visitor.sat_through.get(kind) is wait
        return None if finished else wait


class Closable(Protocol):
    """A connection, as far as a site cares."""

    def hang_up(self, *, goodbye: bool) -> None: ...


class Kept(Protocol):
    """A server that is started again when it dies."""

    @property
    def gave_up(self) -> str | None:
        """Why it won't be any more; None while it will."""


class Site:
    """One server as one AgentEnv sees it. Pickles as one that knows nothing but the address."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.waits = waits_of(address.url)
        self.answered = False
        """Whether a session of this site was ever opened: before that, a failure is a mistake."""
        self.extended: bool | None = None
        """Whether the server speaks our extensions; None until it has said so."""
        self.journaled = True
        """Whether a restarted server can go on with its sessions, as far as it has said."""
        self.kept: Kept | None = None
        """Whoever starts the server again when it dies, if this process does."""
        self.generation = 0
        """Counts `close`: a call that was under way then doesn't connect again."""
        self.ended = False
        """Whether this client is done with: no call begins any more."""
        self._open: WeakSet[Closable] = WeakSet()
        _here.add(self)

    def __getstate__(self) -> Address:
        return self.address

    def __setstate__(self, address: Address) -> None:
        Site.__init__(self, address)

    def after_fork(self) -> None:
        """The connections, and whoever waits, are the parent's."""
        self.waits = waits_of(self.address.url)
        self._open = WeakSet()

    def opened(self, connection: Closable) -> None:
        """Remember it for `close`, as long as somebody uses it."""
        self._open.add(connection)

    def closed(self, connection: Closable) -> None:
        """It needn't be closed any more."""
        self._open.discard(connection)

    @property
    def dead(self) -> str | None:
        """Why the server is dead for good, where this process knows that."""
        return None if self.kept is None else self.kept.gave_up

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._open)

    def close(self) -> None:
        """End every session of this site."""
        self.generation += 1
        self.ended = True
        slow = False
        for connection in list(self._open):
            began = time.monotonic()
            # A hung server would make each goodbye wait; it drops who leaves without one, too.
            connection.hang_up(goodbye=not slow)
            slow = slow or time.monotonic() - began > CLOSE_TIMEOUT_S / 2


class Forkable(Protocol):
    """What a forked process may not share with its parent."""

    def after_fork(self) -> None:
        """Begin anew, in the child."""


_here: WeakSet[Forkable] = WeakSet()
_all: WeakValueDictionary[str, Waits] = WeakValueDictionary()
_lock = threading.Lock()


def waits_of(url: str) -> Waits:
    """The process's waits for that address, for as long as somebody speaks to it."""
    with _lock:
        return _all.setdefault(url, Waits())


def own(shared: Forkable) -> None:
    """Let it begin anew in every forked process."""
    _here.add(shared)


def _after_fork() -> None:
    global _all, _lock
    _all, _lock = WeakValueDictionary(), threading.Lock()
    for shared in list(_here):
        shared.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
