"""What happens by itself: events in the order of their time, each at its own moment.

A caller may jump hours ahead; what was due in between still happens at the time it was due.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta


@dataclass(order=True)
class Event:
    when: datetime
    number: int
    act: Callable[[], None] = field(compare=False)
    off: bool = field(default=False, compare=False)


class Timeline:
    """Events on the caller's clock."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._events: list[Event] = []
        self._number = 0
        self._moment: datetime | None = None

    def time(self) -> datetime:
        """Now; inside an event, when it was due."""
        return self._moment or self._now()

    def ago(self, seconds: float) -> datetime:
        return self.time() - timedelta(seconds=seconds)

    def ahead(self, seconds: float) -> datetime:
        return self.time() + timedelta(seconds=seconds)

    def at(self, when: datetime, act: Callable[[], None]) -> Event:
        self._number += 1
        event = Event(when, self._number, act)
        heapq.heappush(self._events, event)
        return event

    def after(self, seconds: float, act: Callable[[], None]) -> Event:
        return self.at(self.ahead(seconds), act)

    def next(self) -> datetime | None:
        """When the next event is due that hasn't been called off."""
        events = self._events
        while events and events[0].off:
            heapq.heappop(events)
        return events[0].when if events else None

    def settle(self) -> None:
        """Let happen what is due; inside an event, nothing: the outer one goes on."""
        if self._moment is not None or not self._events:
            return
        now = self._now()
        while (due := self.next()) is not None and due <= now:
            event = heapq.heappop(self._events)
            self._moment = due
            try:
                event.act()
            finally:
                self._moment = None
