"""Ending a box that has outlived its own deadlines: nobody else did.

What a box may cost is reserved until a little after the cloud's deadline for that box, however
long the others of its run may live.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator.aws import stack
from orchestrator.aws.skew import check_clock

if TYPE_CHECKING:
    from orchestrator.aws.boxes import BoxRecord
    from orchestrator.aws.session import Session
    from orchestrator.run import RunRecord

# A schedule has fired a minute late at most. With a clock that is a minute behind, and a look that
# comes half a minute later, the box still ends within quote.SLACK.
AFTER = timedelta(seconds=90)


def overdue(record: RunRecord, boxes: Sequence[BoxRecord], now: datetime) -> list[BoxRecord]:
    """Those that live past the cloud's deadline of their own, a fired schedule's time included.

    Of a box that the plan doesn't know the run's last deadline counts. Pure.
    """
    ends = {box.name: box.cloud_at for box in record.plan.boxes}
    late = record.expires_at
    return [box for box in boxes if box.alive and now > ends.get(box.box, late) + AFTER]


def end_overdue(
    session: Session,
    record: RunRecord,
    boxes: Sequence[BoxRecord],
    now: Callable[[], datetime],
    on_step: Callable[[str], None],
) -> list[BoxRecord]:
    """End each box that is overdue; they are returned.

    Raises:
        ClockWrong: by this machine's clock nobody can tell; nothing is ended.
        TeardownError: EC2 would not end one.
        CloudError: the local cloud doesn't answer.
    """
    late = overdue(record, boxes, now())
    if late:
        check_clock(session, now)
        names = ", ".join(f"{box.box or 'a box'} {box.instance_id}" for box in late)
        on_step(f"ending what outlived its deadlines: {names}")
        stack.end_boxes(session, record.run_id, late)
    return late
