"""One simulated time for the cloud, the boxes and the controller; each may read it wrongly."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

START = datetime(2026, 12, 1, 20, 0, tzinfo=UTC)


class Time:
    """True time. `pass_to` lets everything happen that is due until then."""

    def __init__(self, pass_to: Callable[[datetime], None]) -> None:
        self.at = START
        self._pass_to = pass_to

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    def sleep(self, seconds: float) -> None:
        self._pass_to(self.at + timedelta(seconds=max(0.0, seconds)))


def seconds(at: datetime) -> int:
    """Since the start of the life."""
    return int((at - START).total_seconds())
