"""The lives of a run's boxes: each instance that was ever launched, as EC2 and the log tell of it.

A box that is lost is launched again, so it may have several lives. EC2 is believed where it lists
an instance; the log remembers what EC2 has forgotten. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from orchestrator.bill import Span
from orchestrator.run import Event, EventKind, RunRecord, line_of

if TYPE_CHECKING:
    from orchestrator.aws.instances import BoxRecord

TERMINATED = "terminated"
GONE = "gone"
"""EC2 doesn't list it, and nobody has seen it end."""
UNLISTED = "no longer listed by EC2"
"""Why a life ended whose end nobody saw."""


@dataclass(frozen=True)
class Life:
    """One instance of a box, from its launch on."""

    box: str
    attempt: int
    instance_id: str
    instance_type: str
    zone: str
    state: str
    """EC2's word, or GONE."""
    reason: str
    launched_at: datetime
    ended_at: datetime | None
    noted_at: datetime | None = None
    """When the log took it in; None: no controller has seen it yet."""
    end_noted: bool = False
    unarmed: bool = False
    """The controller ended it because its kill schedule could not be made."""

    @property
    def ended(self) -> bool:
        """EC2 said so, now or once."""
        return self.state == TERMINATED

    @property
    def line(self) -> str:
        return line_of(self.box, self.attempt)

    def span(self, disk_gb: int) -> Span:
        """What is billed for it."""
        return Span(self.box, self.instance_type, disk_gb, self.launched_at, self.ended_at)


def lives_of(
    record: RunRecord, events: Sequence[Event], instances: Iterable[BoxRecord]
) -> list[Life]:
    """Every life, in the order of boxes, attempts and launches."""
    boxes = [box.name for box in record.plan.boxes]
    noted = _noted_once([e for e in events if e.kind is EventKind.LAUNCHED and e.box in boxes])
    ends = [e for e in events if e.kind is EventKind.ENDED]
    listed = {each.instance_id: each for each in known_by(noted, instances) if each.box in boxes}
    known = {event.instance_id for event in noted}
    lives = [_noted(record, e, listed.get(e.instance_id or ""), _end(e, ends)) for e in noted]
    lives += [_listed(each, None) for each in listed.values() if each.instance_id not in known]
    unarmed = {e.instance_id for e in events if e.kind is EventKind.UNARMED}
    lives = [replace(life, unarmed=life.instance_id in unarmed) for life in lives]
    return sorted(lives, key=lambda life: (boxes.index(life.box), life.attempt, life.launched_at))


def known_by(events: Iterable[Event], instances: Iterable[BoxRecord]) -> list[BoxRecord]:
    """The instances, as the boxes that the log calls them: a person may have changed a tag."""
    noted = {e.instance_id: e for e in events if e.kind is EventKind.LAUNCHED and e.box}
    return [
        replace(each, box=noted[each.instance_id].box or "", attempt=noted[each.instance_id].nth)
        if each.instance_id in noted
        else each
        for each in instances
    ]


def _noted_once(launched: Sequence[Event]) -> list[Event]:
    """Each instance by its first entry: two controllers may both have written it down."""
    first: dict[object, Event] = {}
    for event in launched:
        first.setdefault(event.instance_id or (event.box, event.nth), event)
    return list(first.values())


def lives_by_box(lives: Iterable[Life]) -> dict[str, list[Life]]:
    """The same by box, each in order."""
    found: dict[str, list[Life]] = {}
    for life in lives:
        found.setdefault(life.box, []).append(life)
    return found


def _end(launched: Event, ends: Sequence[Event]) -> Event | None:
    """The entry about the end of that instance; older entries name only the box."""
    for end in ends:
        same = end.instance_id in (None, launched.instance_id)
        if end.box == launched.box and end.nth == launched.nth and same:
            return end
    return None


def _noted(
    record: RunRecord, launched: Event, listed: BoxRecord | None, end: Event | None
) -> Life:
    if listed is not None:
        return _listed(listed, launched, end)
    box = launched.box or ""
    return Life(
        box=box,
        attempt=launched.nth,
        instance_id=launched.instance_id or "",
        instance_type=launched.instance_type or record.plan.box(box).instance,
        zone=launched.zone or "",
        state=TERMINATED if end else GONE,
        reason=(end.reason if end else None) or "",
        launched_at=launched.launched_at or launched.at,
        ended_at=end.ended_at if end else None,
        noted_at=launched.at,
        end_noted=end is not None,
    )


def _listed(box: BoxRecord, launched: Event | None, end: Event | None = None) -> Life:
    return Life(
        box=box.box,
        attempt=box.attempt,
        instance_id=box.instance_id,
        instance_type=box.instance_type,
        zone=box.zone,
        state=box.state,
        reason=box.reason,
        launched_at=box.launched_at,
        ended_at=(end.ended_at if end else None) or box.ended_at,
        noted_at=launched.at if launched else None,
        end_noted=end is not None,
    )
