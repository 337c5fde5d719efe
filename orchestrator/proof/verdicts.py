"""How each box should end, how it did, and what that proves. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator.proof.checks import Check, Verdict
from orchestrator.proof.design import AGENT, GUARD, HALTED, SCHEDULE, TIMER, Timing

if TYPE_CHECKING:
    from orchestrator.aws.boxes import BoxRecord
    from orchestrator.plan import Plan

BY_ITSELF = "Client.InstanceInitiatedShutdown"
BY_CALL = "Client.UserInitiatedShutdown"
# EC2 tells whole seconds, and its clock isn't ours.
_EARLY = timedelta(seconds=2)


@dataclass(frozen=True)
class Expected:
    """How one box must end to prove its enforcer."""

    box: str
    enforcer: str
    """In words."""
    reason: str
    """EC2's code for who ended it."""
    after: datetime
    """Not before: a box that dies too early proves nothing."""
    by: datetime
    """No longer running by then."""
    gone_by: datetime
    """`terminated` by then."""


@dataclass(frozen=True)
class Seen:
    """What was seen of one box: when it was first not running, and first `terminated`."""

    box: str
    state: str = "pending"
    reason: str = ""
    ended_at: datetime | None = None
    gone_at: datetime | None = None

    def then(self, record: BoxRecord, now: datetime) -> Seen:
        """After another look. EC2's own time of the end counts, where it tells one."""
        ended = self.ended_at
        if not record.alive and ended is None:
            ended = min(record.ended_at or now, now)
        gone = self.gone_at or (now if record.state == "terminated" else None)
        return replace(
            self, state=record.state, reason=record.reason, ended_at=ended, gone_at=gone
        )


@dataclass
class Sightings:
    """All boxes as they were seen so far."""

    boxes: dict[str, Seen] = field(default_factory=dict)

    def look(self, records: list[BoxRecord], now: datetime) -> None:
        for record in records:
            self.boxes[record.box] = self.of(record.box).then(record, now)

    def of(self, box: str) -> Seen:
        return self.boxes.get(box, Seen(box))


def expectations(plan: Plan, timing: Timing) -> Mapping[str, Expected]:
    """Of the boxes that end without the controller."""
    box = plan.box
    ways = {
        TIMER: ("its own power-off timer alone", BY_ITSELF, box(TIMER).poweroff_at, 0),
        SCHEDULE: ("its schedule alone", BY_CALL, box(SCHEDULE).cloud_at, timing.fires_late),
        GUARD: (
            "its guard alone, by its tag",
            BY_CALL,
            plan.planned_at + timedelta(seconds=timing.schedule),
            timing.fires_late,
        ),
        HALTED: (
            "its schedule, after `halt`, which ended nothing",
            BY_CALL,
            box(HALTED).cloud_at,
            timing.fires_late,
        ),
    }
    found = {
        name: _expected(name, words, reason, at, at + timedelta(seconds=late), timing)
        for name, (words, reason, at, late) in ways.items()
    }
    drain, off = box(AGENT).drain_at, box(AGENT).poweroff_at
    words = "its agent, once all was saved"
    return {**found, AGENT: _expected(AGENT, words, BY_ITSELF, drain, off, timing)}


def asked(box: str, enforcer: str, at: datetime, timing: Timing) -> Expected:
    """Of a box that is ended by a call at `at`."""
    return _expected(box, enforcer, BY_CALL, at, at, timing)


def judge(expected: Expected, seen: Seen) -> Check:
    """What a box's end proves; `seconds` from its deadline to its end."""
    wrong = _wrong(expected, seen)
    lag = (seen.ended_at - expected.after).total_seconds() if seen.ended_at else None
    gone = ""
    if seen.gone_at and seen.ended_at:
        gone = f", terminated {max(0.0, (seen.gone_at - seen.ended_at).total_seconds()):.1f} s on"
    return Check(
        name=f"ended: {expected.box}",
        verdict=Verdict.FAIL if wrong else Verdict.PASS,
        detail=wrong or f"by {expected.enforcer}: {seen.reason}{gone}",
        seconds=lag if lag is None else max(0.0, lag),
    )


def is_settled(expected: Expected, seen: Seen, now: datetime) -> bool:
    """Whether nothing more can change the verdict."""
    return seen.state == "terminated" or now > expected.gone_by


def _wrong(expected: Expected, seen: Seen) -> str:
    if seen.ended_at is None:
        return f"{expected.enforcer} did not end it: still {seen.state}"
    if seen.ended_at < expected.after - _EARLY:
        early = (expected.after - seen.ended_at).total_seconds()
        return f"it ended {early:.0f} s before {expected.enforcer} could: {seen.reason}"
    if seen.reason != expected.reason:
        return f"ended by {seen.reason or 'nobody knows whom'}, not {expected.reason}"
    if seen.ended_at > expected.by:
        late = (seen.ended_at - expected.by).total_seconds()
        return f"{expected.enforcer} ended it {late:.0f} s too late"
    return "" if seen.state == "terminated" else f"it is {seen.state} and doesn't go on to end"


def _expected(
    box: str, enforcer: str, reason: str, after: datetime, latest: datetime, timing: Timing
) -> Expected:
    by = latest + timedelta(seconds=timing.ends_late)
    gone_by = by + timedelta(seconds=timing.gone_late)
    return Expected(box, enforcer, reason, after, by, gone_by)
