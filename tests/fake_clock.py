"""A clock that only waiting moves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass
class FakeClock:
    """Time that passes only while somebody waits."""

    at: datetime = datetime(2026, 11, 29, 19, 0, tzinfo=UTC)
    waited_s: float = 0.0

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.waited_s

    def sleep(self, seconds: float) -> None:
        self.waited_s += seconds
        self.at += timedelta(seconds=seconds)
