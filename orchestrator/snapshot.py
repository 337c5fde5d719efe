"""A run at one moment, as the terminal, `--json` and the report all show it: the values alone."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from orchestrator.verdicts import Compared

if TYPE_CHECKING:
    from collections.abc import Iterator


class Stage(StrEnum):
    """Where the run is in the order of things."""

    RESERVED = "reserved"
    BUILDING = "building"
    RUNNING = "running"
    ENDED = "boxes ended"
    TEARING_DOWN = "tearing down"
    CLEAN = "clean"


class BoxView(BaseModel):
    """One box: what EC2 says and what its heartbeat says."""

    model_config = ConfigDict(frozen=True)

    name: str
    instance: str
    instance_id: str | None
    attempt: int = 1
    """Which launch of it this is; 0 before the first."""
    state: str
    reason: str
    phase: str | None
    drain_at: datetime
    poweroff_at: datetime
    cloud_at: datetime
    worst_case_usd: Decimal
    usd: Decimal
    heartbeat_age_s: float | None


class JobView(BaseModel):
    """One job: its last known status, and what the runbook expected."""

    model_config = ConfigDict(frozen=True)

    name: str
    box: str
    state: str
    reason: str
    attempt: int
    step: int | None
    max_steps: int | None
    metrics: dict[str, Any]
    complete: bool
    """COMPLETE stands in the bucket: the final manifest was verified there."""
    missed: tuple[str, ...]
    """Expected values that the final metrics don't meet, each in words."""
    compared: tuple[Compared, ...] = ()
    """The final numbers that the runbook has a reference for."""

    def lines(self) -> list[str]:
        """Final numbers in short, then why it isn't done, then what was expected otherwise.

        What was measured at several times has a line of its own. Without the numbers of single
        scores and of the environment: `--json` and the report have all.
        """
        numbers = self._numbers(details=False)
        lines = [*_counts(numbers), *_courses(numbers)]
        words = [f"{name} {_short(v)}" for name, v in numbers.items()]
        lines += ["; ".join(words)] if words else []
        lines += [self.reason] if self.reason else []
        return lines + [f"expected otherwise: {missed}" for missed in self.missed]

    @property
    def details(self) -> str:
        """The final numbers that `lines` leaves out."""
        numbers = self._numbers(details=True)
        return "; ".join(f"{name} {_short(v)}" for name, v in numbers.items())

    def _numbers(self, *, details: bool) -> dict[str, int | float]:
        return {
            name: value
            for name, value in self.metrics.items()
            if isinstance(value, int | float)
            and name not in _HIDDEN
            and name.startswith(_DETAILS) == details
        }


class Snapshot(BaseModel):
    """The run at one moment."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    cloud: str
    region: str
    stage: Stage
    at: datetime
    cap_usd: Decimal
    worst_case_usd: Decimal
    spent_usd: Decimal
    boxes: tuple[BoxView, ...]
    jobs: tuple[JobView, ...]
    alarms: tuple[str, ...] = ()
    """What a person must act on: a switch of the cloud that failed."""
    ended_because: str = ""
    """What somebody who ended it at once said; empty otherwise."""

    @property
    def headline(self) -> str:
        """The stage, and why it was ended by hand."""
        by_hand = f", ended by hand: {self.ended_because}" if self.ended_because else ""
        return f"{self.stage}{by_hand}"

    @property
    def failed(self) -> tuple[JobView, ...]:
        """Jobs without a verified COMPLETE."""
        return tuple(job for job in self.jobs if not job.complete)

    @property
    def missed(self) -> tuple[str, ...]:
        """Every unmet expectation, each naming its job."""
        return tuple(f"{job.name}: {words}" for job in self.jobs for words in job.missed)

    @property
    def compared(self) -> tuple[Compared, ...]:
        """Every number with a reference, in the order of the runbook."""
        return tuple(row for job in self.jobs for row in job.compared)


class RunRow(BaseModel):
    """A run in the list of runs, as its record and log tell."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    stage: Stage
    region: str
    created_at: datetime
    cap_usd: Decimal
    expires_at: datetime
    """When its last box is gone at the latest."""


_HIDDEN = frozenset({"t", "step", "max_steps", "reward", "seconds"})
_DETAILS = ("env/", "score/")
_TIMES = ("", "before", "first", "middle", "after", "last")
"""How the numbers of one course are told apart, by the end of their names, in order."""


def _counts(numbers: dict[str, Any]) -> Iterator[str]:
    """`next_rollouts 16, next_scored 0` as `next: 0 of 16 rollouts scored`; takes them out."""
    for name in [name for name in numbers if name.endswith("rollouts")]:
        part = name.removesuffix("rollouts")
        if f"{part}scored" not in numbers:
            continue
        total, scored = numbers.pop(name), numbers.pop(f"{part}scored")
        numbers.pop(f"{part}unscored", None)
        yield f"{f'{part[:-1]}: ' if part else ''}{scored} of {total} rollouts scored"


def _courses(numbers: dict[str, Any]) -> Iterator[str]:
    """`x_before 1, x_after 2` as `x: 1 before, 2 after`; takes them out."""
    stems = dict.fromkeys(name.rpartition("_")[0] for name in numbers if name.endswith(_TIMES[1:]))
    for stem in filter(None, stems):
        names = {time: f"{stem}_{time}" if time else stem for time in _TIMES}
        told = {time: name for time, name in names.items() if name in numbers}
        if len(told) > 1:
            words = [f"{_short(numbers.pop(name))} {time}".rstrip() for time, name in told.items()]
            yield f"{stem}: {', '.join(words)}"


def _short(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
