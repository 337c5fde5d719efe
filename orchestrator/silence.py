"""Boxes that run and aren't heard of: told once each time, with the command that helps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from orchestrator.snapshot import BoxView, Snapshot

SHORTEST_S = 60.0
"""An agent reports every ten seconds at the latest."""


@dataclass
class Silence:
    """Which boxes were told of already; `loss_bound_s` is the run's."""

    loss_bound_s: float
    _told: set[str] = field(default_factory=set)

    def lines(self, seen: Snapshot) -> Iterator[str]:
        """A line for each box that has gone silent since the last look."""
        silent = {box.name: box for box in seen.boxes if self._is_silent(box)}
        for name, box in silent.items():
            if name not in self._told:
                yield (
                    f"{name} hasn't been heard of for {box.heartbeat_age_s:.0f} s; "
                    f"fetch its results over SSH: gpurun rescue {seen.run_id} {name}"
                )
        self._told = set(silent)

    def _is_silent(self, box: BoxView) -> bool:
        age = box.heartbeat_age_s
        return box.state == "running" and age is not None and age > self.patience_s

    @property
    def patience_s(self) -> float:
        return max(self.loss_bound_s, SHORTEST_S)
