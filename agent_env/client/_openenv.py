"""How long a session tries to reach its server, and for whose sake.

A server that refuses connections is restarting: it is waited for as long as a reset may take. One
that is busy is waited for only briefly, so that an environment whose slot another one took gives
up rather than stalling a training step. Whatever is waited for, the call's budget ends it.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from agent_env.client._frames import Refusal
from agent_env.client._policy import CONNECT_TIMEOUT_S, PROBE_S, Policy
from agent_env.client._site import Site, Visitor, Wait
from agent_env.client._talk import Cut, Pause, T, Talk
from agent_env.errors import AtCapacity, JournalFull, ServerDown, SessionError

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 0.5

Clock = Callable[[], float]
"""Monotonic seconds."""


@dataclass
class Call:
    """One call of a session, from when it began to when it has to be over."""

    visitor: Visitor
    deadline: float
    generation: int
    """The site's at the beginning; another one now means that it was closed meanwhile."""
    opened_at: float
    """When the last attempt began."""
    connect_s: float = CONNECT_TIMEOUT_S
    queued_s: float = 0.0
    """How long the server may make us queue for room before it answers."""
    broke: bool = False
    """Whether its connection broke once, which alone says nothing of the server."""
    connects: int = 0
    """Connections that it had to open."""
    waits: dict[type, Wait] = field(default_factory=dict)

    def left(self, now: float) -> float:
        """Seconds until the call's budget is spent."""
        return max(0.0, self.deadline - now)


def reopened(
    attempt: Callable[[], Talk[T]],
    call: Call,
    site: Site,
    policy: Policy,
    *,
    clock: Clock,
    jitter: Callable[[], float] = random.random,
) -> Talk[T]:
    """Make the attempt until it succeeds or the policy's time is over.

    Raises the last ServerDown, AtCapacity or JournalFull, and at once whatever else it raises.
    """
    pause_s = _FIRST_PAUSE_S
    while True:
        call.opened_at = began = clock()
        try:
            return (yield from attempt())
        except (ServerDown, Cut, Refusal) as failed:
            if isinstance(failed, Cut) and not call.broke and call.left(began) > 0:
                call.broke = True
                continue
            error, hint_s = _curable(failed, site)
            there = site.answered or site.kept is not None
            known = there or (isinstance(failed, Cut) and site.extended is True)
            left_s = _left(error, call, site, policy, clock(), known=known)
            if left_s <= 0:
                call.visitor.waited_s += clock() - began
                raise error from failed
        yield Pause(min(left_s, max(hint_s, pause_s) * (0.5 + jitter())))
        call.visitor.waited_s += clock() - began
        if call.left(clock()) <= 0:
            raise error
        pause_s = min(_LONGEST_PAUSE_S, 1.5 * pause_s)
        call.connect_s = min(CONNECT_TIMEOUT_S, max(PROBE_S, left_s))


def _curable(failed: ServerDown | Cut | Refusal, site: Site) -> tuple[SessionError, float]:
    """What time may cure, and the server's hint how much; the rest is raised from here."""
    if site.dead is not None and not isinstance(failed, Refusal):
        return ServerDown(site.dead), 0.0
    if isinstance(failed, ServerDown):
        return failed, 0.0
    if isinstance(failed, Cut):
        # Accepted and then cut off is what a server does that is stopping: it is down.
        return ServerDown(f"the connection broke: {failed}"), 0.0
    if isinstance(failed.error, AtCapacity | JournalFull):
        return failed.error, failed.retry_after_s
    raise failed.error from None


def _left(
    error: SessionError, call: Call, site: Site, policy: Policy, now: float, *, known: bool
) -> float:
    """Seconds left to get past that error; the first of its kind joins or begins a wait.

    A server that isn't `known` to be there is none that restarts.
    """
    if isinstance(error, JournalFull):
        return call.left(now)
    kind = type(error)
    full = kind is AtCapacity
    if full:
        site.waits.over(ServerDown)
    elif not known or site.dead is not None:
        return 0.0
    budget_s = policy.wait_s(error)
    if kind not in call.waits:
        began = call.opened_at if full else now
        wait = site.waits.join(call.visitor, kind, budget_s, now, began=began)
        call.waits[kind] = wait
        _log.info("%s; trying for %.1f s", error, wait.left(budget_s, now))
    return min(call.waits[kind].left(budget_s, now), call.left(now))
