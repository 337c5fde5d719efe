"""How long a session waits for its server, and for whose sake.

A server that refuses connections is restarting: it is waited for as long as a reset may take. One
that is busy is waited for only briefly, so that an environment whose slot another one took gives
up rather than stalling a training step. Trainers reset one environment after the other, so all
sessions of one server share one deadline: the first one waits, the rest reuse its verdict.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from agent_env.errors import AtCapacity, ServerDown, SessionLost

T = TypeVar("T")

_log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 10.0
PROBE_S = 2.0
"""What a try may take once a deadline has passed: enough for a healthy server to answer."""

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How patient a session is; all in seconds."""

    patience: float
    """For room on a full server."""
    reset_timeout: float
    """For the reply to a reset."""
    waits_for_server: bool
    """Wait for a server that refuses connections, instead of giving up at once."""
    step_timeout: float = 60.0
    """For the reply to a step."""

    def budget(self, error: ServerDown | AtCapacity) -> float:
        """How long to go on trying after that error, counted from the first."""
        if isinstance(error, AtCapacity):
            return self.patience
        return max(self.patience, self.reset_timeout) if self.waits_for_server else 0.0


class Closable(Protocol):
    """A connection, as far as a site cares."""

    def close(self) -> None: ...


@dataclass(eq=False)
class Wait:
    """One wait for one server, shared by the sessions that need it."""

    deadline: float


class Site:
    """What the sessions of one server know together. Pickles as one that knows nothing."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answered = False
        """Whether a session of this site was ever opened: before that, a failure is a mistake."""
        self._waits: dict[type, Wait] = {}
        self._open: WeakSet[Closable] = WeakSet()
        self._lock = threading.Lock()

    def __getstate__(self) -> str:
        return self.url

    def __setstate__(self, url: str) -> None:
        Site.__init__(self, url)

    def opened(self, connection: Closable) -> None:
        """Remember it for `close`, as long as somebody uses it."""
        self._open.add(connection)

    def close(self) -> None:
        """Close every connection of this process to the site."""
        for connection in list(self._open):
            connection.close()

    def join(self, visitor: Visitor, kind: type, budget_s: float, now: float) -> Wait:
        """The wait that is under way, or a new one for who has already sat through the last."""
        with self._lock:
            wait = self._waits.get(kind)
            if wait is None or (wait.deadline <= now and visitor.sat_through.get(kind) is wait):
                wait = self._waits[kind] = Wait(now + budget_s)
            visitor.sat_through[kind] = wait
            return wait

    def given_up(self, visitor: Visitor, now: float) -> bool:
        """True while another session's wait for the server has just been in vain."""
        with self._lock:
            wait = self._waits.get(ServerDown)
            return (
                wait is not None
                and wait.deadline <= now
                and visitor.sat_through.get(ServerDown) is not wait
            )

    def over(self, *kinds: type) -> None:
        """The server answered: the next failure begins a new wait."""
        with self._lock:
            for kind in kinds:
                self._waits.pop(kind, None)


@dataclass
class Visitor:
    """What a session has gone through: the waits it took part in, and their time in seconds."""

    sat_through: dict[type, Wait] = field(default_factory=dict)
    waited_s: float = 0.0


def reopened(
    attempt: Callable[[float], T],
    site: Site,
    visitor: Visitor,
    policy: Policy,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Any] = time.sleep,
) -> T:
    """Try `attempt(connect timeout in s)` until it succeeds or the policy's time is over.

    Raises the last ServerDown or AtCapacity, and at once whatever else the attempt raises.
    """
    waits: dict[type, Wait] = {}
    pause_s = _FIRST_PAUSE_S
    connect_s = PROBE_S if site.given_up(visitor, clock()) else CONNECT_TIMEOUT_S
    while True:
        began = clock()
        try:
            result = attempt(connect_s)
        except (ServerDown, SessionLost, AtCapacity) as lost:
            # Accepted and then cut off is what a server does that is stopping: it is down.
            error = ServerDown(str(lost)) if isinstance(lost, SessionLost) else lost
            left_s = _left(error, waits, site, visitor, policy, clock())
            if left_s <= 0:
                visitor.waited_s += clock() - began
                raise error from lost
        else:
            site.over(ServerDown, AtCapacity)
            return result
        sleep(min(left_s, pause_s * random.uniform(0.5, 1.5)))  # noqa: S311 - jitter
        visitor.waited_s += clock() - began
        pause_s = min(_LONGEST_PAUSE_S, 1.5 * pause_s)
        connect_s = min(CONNECT_TIMEOUT_S, max(PROBE_S, left_s))


def _left(
    error: ServerDown | AtCapacity,
    waits: dict[type, Wait],
    site: Site,
    visitor: Visitor,
    policy: Policy,
    now: float,
) -> float:
    """Seconds left to get past that error; the first of its kind joins or begins a wait."""
    kind = type(error)
    if kind is AtCapacity:
        site.over(ServerDown)
    if kind not in waits:
        waits[kind] = site.join(visitor, kind, policy.budget(error), now)
        _log.info("%s; trying for %.1f s", error, waits[kind].deadline - now)
    return waits[kind].deadline - now
