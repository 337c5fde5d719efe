"""What a person must be told of a run because no enforcer will: a switch of the cloud that failed.

A kill schedule speaks up in the run's dead letters, or not at all when its role is gone: then
only a box that lives past its cloud deadline shows it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.aws.dead_letters import Letter, read_letters
from orchestrator.errors import ApiError, QuotaError
from orchestrator.run import EventKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from orchestrator.aws.boxes import BoxRecord
    from orchestrator.aws.session import Session
    from orchestrator.run import Event, RunRecord

# A schedule fires within its minute, and ending takes another one.
_ENDED_BY = timedelta(minutes=2)


def letters_of(session: Session, record: RunRecord, now: datetime) -> list[Letter]:
    """The run's dead letters; none are asked for before the first switch's time.

    A queue that can't be read is an alarm of its own: it must not keep a run from ending.
    """
    if now < min(box.cloud_at for box in record.plan.boxes):
        return []
    try:
        return read_letters(session, record.run_id)
    except (ApiError, QuotaError) as error:
        return [Letter("", f"the dead letters can't be read: {error.message}")]


def unnoted(letters: Iterable[Letter], events: Iterable[Event]) -> list[Letter]:
    """Those of a box that the log doesn't have yet."""
    noted = {(e.box, e.reason) for e in events if e.kind is EventKind.SWITCH_FAILED}
    return [each for each in letters if each.box and (each.box, each.reason) not in noted]


def alarms(
    record: RunRecord,
    events: Sequence[Event],
    instances: Iterable[BoxRecord],
    letters: Iterable[Letter],
    now: datetime,
) -> tuple[str, ...]:
    """One sentence for each thing that went wrong with the cloud's own switches. Pure."""
    alive = {name for each in instances if each.alive for name in (each.box, each.instance_id)}
    known = [
        Letter(event.box or "", event.reason or "")
        for event in events
        if event.kind is EventKind.SWITCH_FAILED
    ]
    failed = [_failed(each, alive, record.run_id) for each in (*known, *letters)]
    late = [
        f"{box.name} still runs {int((now - box.cloud_at).total_seconds() // 60)} min after the "
        f"cloud's own switch should have ended it; end it: gpurun down {record.run_id}"
        for box in record.plan.boxes
        if box.name in alive and now > box.cloud_at + _ENDED_BY
    ]
    return tuple(dict.fromkeys((*failed, *late)))


def _failed(letter: Letter, alive: set[str], run_id: str) -> str:
    if not letter.box:
        return letter.reason
    what_now = f"end it: gpurun down {run_id}" if letter.box in alive else "the box has ended"
    return f"the cloud's own switch for {letter.box} failed: {letter.reason}; {what_now}"
