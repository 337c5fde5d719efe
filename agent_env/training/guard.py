"""A guard against training on nothing: too many unscored rollouts end the run.

A step whose rollouts are all unscored moves no weight and fails no trainer: only its bill goes on.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

UNTOLD = "no reason told"


class UnscoredGuard:
    """Watches the share of unscored rollouts among the most recent ones.

    `limit` is the share, from 0 to 1, that must not be passed; `rollouts` is how many of the most
    recent ones it is taken over, and nothing is judged before there are so many. Raises ValueError
    for numbers that mean nothing.
    """

    def __init__(self, limit: float, rollouts: int) -> None:
        if not 0 <= limit <= 1:
            raise ValueError(f"limit: a share from 0 to 1, not {limit}")
        if rollouts < 1:
            raise ValueError(f"rollouts: at least 1, not {rollouts}")
        self.limit = limit
        self._recent: deque[str | None] = deque(maxlen=rollouts)

    def count(self, scored: bool, why: str | None = None) -> None:
        """One more rollout; `why` it was lost."""
        self._recent.append(None if scored else why or UNTOLD)

    @property
    def share(self) -> float:
        """Of the recent rollouts, those unscored; 0 before the first."""
        lost = sum(why is not None for why in self._recent)
        return lost / len(self._recent) if self._recent else 0.0

    @property
    def tripped(self) -> str | None:
        """Why the run must end; None while it may go on."""
        if len(self._recent) < (self._recent.maxlen or 1) or self.share <= self.limit:
            return None
        return (
            f"{self.share:.0%} of the last {len(self._recent)} rollouts are unscored, "
            f"the limit is {self.limit:.0%}: {reasons(self._recent)}"
        )


def reasons(whys: Iterable[str | None]) -> str:
    """The most frequent ones; None is a scored rollout."""
    most = Counter(why for why in whys if why is not None).most_common(3)
    return "; ".join(f"{why} ({count} times)" for why, count in most)
