"""When a box's agent was last heard of: when its heartbeat changed between two of our own looks.

The box's clock and ours are never compared, as either may be wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from orchestrator.recovery import HEARD_WITHIN


@dataclass
class Hearing:
    """The newest heartbeat of each box, and when a look first found it there."""

    _beats: dict[str, tuple[dict[str, Any], datetime]] = field(default_factory=dict)

    def heard_at(self, box: str, beat: dict[str, Any] | None, now: datetime) -> datetime | None:
        """By our clock; None for a box that never said anything, or has said goodbye.

        What the first look finds may be old: it counts as heard right then.
        """
        if not beat or beat["phase"] == "off":
            return None
        known = self._beats.get(box)
        if known is None or known[0] != beat:
            known = self._beats[box] = (beat, now)
        return known[1]

    def hears(self, box: str, beat: dict[str, Any] | None, now: datetime) -> bool:
        """Whether its agent was heard of lately."""
        at = self.heard_at(box, beat, now)
        return at is not None and timedelta() <= now - at < HEARD_WITHIN
