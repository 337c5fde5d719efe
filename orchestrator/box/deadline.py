"""When a box stops working, and a clock that can't be talked out of it.

Drain begins at `drain_at`: the trainer gets SIGTERM and half of what is left until power-off;
the rest belongs to the flush. The agent leaves by itself a little before `poweroff_at`, when the
watchers that user data armed would end the box anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

# systemd waits 90 s between SIGTERM and SIGKILL (DefaultTimeoutStopSec, systemd-system.conf(5)).
STOP_GRACE_S = 80.0
# The seconds that a box has lived are on its disk so far ahead, as they are written so seldom.
AHEAD_S = 10
# A spot instance is taken two minutes after its notice, of which polling may cost a few seconds
# (EC2 User Guide, "Spot Instance interruption notices").
NOTICE_S, NOTICE_LEFT_S = 120.0, 110.0


class Clock:
    """Epoch seconds that go forward only, and seconds that no clock's setting changes.

    The wall clock may be wrong at boot and may be set back later: `not_before` (when the plan
    was made) bounds the first, the monotonic clock the second. Of two answers the later one is
    taken, so that a wrong clock can shorten a box's life but never lengthen it.
    """

    def __init__(
        self,
        not_before: float = 0.0,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._started_at = max(wall(), not_before)
        self._started = monotonic()

    def now(self) -> float:
        return max(self._wall(), self._started_at + self._monotonic() - self._started)

    def steady(self) -> float:
        """Seconds that passed since some moment, whatever the wall clock was set to."""
        return self._monotonic()


def lived_s(root: Path) -> float:
    """How long the box has lived at least, over all its boots, as its watcher counted."""
    try:
        return max(0.0, float((root / "lived").read_text()) - AHEAD_S)
    except (OSError, ValueError):
        return 0.0


@dataclass(frozen=True)
class Deadlines:
    """Epoch seconds, in the order drain <= kill < flush < power-off."""

    drain_at: float
    poweroff_at: float
    noticed_at: float | None = None
    """When a spot instance was told that it will be taken at `poweroff_at`."""

    @property
    def kill_at(self) -> float:
        """When a trainer that ignores SIGTERM gets SIGKILL: half-way."""
        begin = self.drain_at if self.noticed_at is None else self.noticed_at
        return begin + (self.poweroff_at - begin) / 2

    @property
    def flush_by(self) -> float:
        """When uploads must be over, so that the last log and heartbeat get out."""
        if self.noticed_at is not None:
            return self.poweroff_at - min(15.0, 0.25 * (self.poweroff_at - self.noticed_at))
        return self.poweroff_at - min(20.0, 0.15 * (self.poweroff_at - self.drain_at))

    def from_now(self, now: float) -> Deadlines:
        """The box was told to stop: the same drain at once, if it hasn't begun."""
        earlier = max(0.0, self.drain_at - now)
        at = self.drain_at - earlier, self.poweroff_at - earlier
        return replace(self, drain_at=at[0], poweroff_at=at[1])

    def by_notice(self, taken_at: float, now: float) -> Deadlines:
        """The spot instance will be taken: drain at once, and use all of the notice.

        A notice is two minutes long at the most: one that says otherwise was read by a wrong
        clock.
        """
        if not now < taken_at <= now + NOTICE_S:
            taken_at = now + NOTICE_LEFT_S
        if taken_at >= self.poweroff_at:
            return replace(self, drain_at=min(self.drain_at, now))
        return Deadlines(min(self.drain_at, now), taken_at, noticed_at=now)

    def brought_forward(self, now: float) -> Deadlines:
        """The host is being stopped: drain at once, in what systemd gives a service to stop."""
        drain_at = min(self.drain_at, now)
        poweroff_at = min(self.poweroff_at, drain_at + STOP_GRACE_S)
        return replace(self, drain_at=drain_at, poweroff_at=poweroff_at)
