"""One round of a job's results: what it is asked, how it goes, and what it brought."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.box.allowance import USED_UP
from orchestrator.box.commits import Saying
from orchestrator.box.parts import never

if TYPE_CHECKING:
    from collections.abc import Callable

# How long a round that gives way waits for requests that are under way.
PATIENCE_S = 10.0


@dataclass(frozen=True)
class Synced:
    """What a sync committed. `whole`: every file that there is, so nothing would be lost now."""

    seq: int | None
    whole: bool
    notes: tuple[str, ...]
    refused: str = ""
    """Why the final sync can't ever be whole."""
    withheld: tuple[str, ...] = ()
    """What stays on the box because a secret is in it, in words; it doesn't count as missing."""


@dataclass(frozen=True)
class Round:
    """One sync. `now` is in epoch seconds; once `time_is_up`, what is there is committed."""

    attempt: int
    step: int | None
    final: bool
    outcome: str
    status: dict[str, Any]
    """What COMPLETE repeats, for whoever finds the job done later."""
    results: tuple[str, ...]
    """What to take along, relative to the work folder."""
    now: float
    quiet_s: float
    """How long a file that isn't a log must have rested to be taken along before the end."""
    time_is_up: Callable[[], bool]
    only_own: bool = False
    """Only the job's own log and metrics, beside a round that takes its time."""
    clock: Callable[[], float] | None = None
    commit_s: float = math.inf
    """How long what has arrived may wait for the rest before a manifest names it."""
    gives_way: Callable[[], bool] = never
    """Whether to commit and stop here: something came that should go first."""

    @property
    def saying(self) -> Saying:
        return Saying(self.attempt, self.step, self.now, self.outcome, self.status)

    def is_over(self) -> bool:
        return self.time_is_up() or self.gives_way()


@dataclass
class Tally:
    """How a round goes, as its threads tell it."""

    committed_at: float
    waits: bool = False
    refused: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    failure: Exception | None = None
    left: bool = False
    """Nobody waits for its threads any more: what they still bring is older than what is said."""
    _over_at: float | None = None

    def hangs(self, round_: Round) -> bool:
        """Whether something is still on its way though it was told to stop a while ago."""
        if not round_.is_over():
            return False
        self._over_at = self._over_at or time_of(round_)
        return time_of(round_) - self._over_at >= PATIENCE_S

    @property
    def whole(self) -> bool:
        return not (self.waits or self.refused or self.unread or self.failure)

    @property
    def notes(self) -> list[str]:
        return [*self.unread, *(f"{name}: not kept: {USED_UP}" for name in self.refused)]


def time_of(round_: Round) -> float:
    return round_.clock() if round_.clock else round_.now
