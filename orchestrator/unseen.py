"""What was made a moment ago may not be listed yet: until when nobody can say that it is gone.

EC2, IAM and their kin are eventually consistent ("Eventual consistency", EC2 API Reference). So
whoever makes a run's things says so right before, and stops once the run is being taken down; and
whoever takes it down looks again when the last that was announced must show, before it calls the
run clean. That is a minute after the last launch at most: a run that is older waits for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator import run
from orchestrator.errors import LaunchError
from orchestrator.run import Event, EventKind, RunLog, RunRecord

if TYPE_CHECKING:
    from orchestrator.aws.session import Session
    from orchestrator.clock import Clock

_MAKING = (EventKind.BUILDING, EventKind.LAUNCHING, EventKind.LAUNCHED, EventKind.ARMED)
# Of the minute that a look comes later, so much may lie between the announcement and the act.
_AFRESH = timedelta(seconds=15)


def announce(log: RunLog, clock: Clock) -> None:
    """Write that something of the run is about to be made, unless that was just written.

    Raises:
        LaunchError: the run is being taken down, so nothing more may be made.
    """
    newest = _newest(log.read())
    if newest is None or clock.now() - newest >= _AFRESH:
        log.append(EventKind.BUILDING, clock.now())
    if run.has(log.read(), EventKind.TEARING_DOWN):
        raise LaunchError("The run is being taken down: nothing more is made for it")


def unseen_for(
    session: Session, record: RunRecord, events: Iterable[Event], now: datetime
) -> timedelta:
    """How much longer something of the run may exist that no look shows; never negative.

    What the run's secrets are lent in is made right before its record. A clock elsewhere that is
    ahead makes nobody wait longer than for something made now.
    """
    made = max(record.created_at, _newest(events) or record.created_at)
    longest = timedelta(seconds=session.shows_within_s)
    return max(timedelta(0), min(made + longest - now, longest))


def _newest(events: Iterable[Event]) -> datetime | None:
    return max((event.at for event in events if event.kind in _MAKING), default=None)
