"""What boxes did in earlier lives: step by step, with every answer that they had."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

MOST = 48
"""How many boxes are remembered; the one that was asked for least lately goes first."""


@dataclass(frozen=True)
class Event:
    """Something that a box did: a call, a file written, its own end, a trainer's start."""

    what: str
    about: Any
    answer: Any = None
    """What came back, and whether the box was off or stood still afterwards."""


@dataclass
class Step:
    """Everything at one moment (true epoch seconds)."""

    at: float
    events: list[Event] = field(default_factory=list)
    tick_s: float = 10.0


class Traces:
    """The longest known life of each box."""

    def __init__(self) -> None:
        self._known: dict[Hashable, list[Step]] = {}

    def find(self, key: Hashable) -> list[Step]:
        steps = self._known.pop(key, None)
        if steps is not None:
            self._known[key] = steps
        return steps or []

    def keep(self, key: Hashable, steps: list[Step]) -> None:
        if len(self._known.get(key, ())) < len(steps):
            self._known[key] = steps
            if len(self._known) > MOST:
                del self._known[next(iter(self._known))]

    def forget(self) -> None:
        """The code is another one now."""
        self._known.clear()
