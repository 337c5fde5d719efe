"""Logs as they are committed: a job's newest `log.txt`, or the boxes' consoles.

Following reads the bucket, not the box, so it works after the box is gone and from anywhere.
What is printed lags by the sync interval.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator import recovery, results
from orchestrator.clock import SystemClock
from orchestrator.errors import ResultsMissing
from orchestrator.snapshot import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from orchestrator.opened import Opened
    from orchestrator.snapshot import Snapshot

_FOLLOW_S = 2.0
# Without a controller nobody notes that a box has ended; by then the cloud has ended it.
_OVERDUE = timedelta(minutes=10)


def read_logs(opened: Opened, job: str | None, *, follow: bool) -> Iterator[str]:
    """The text so far; with `follow`, also what comes, until the job or run is over.

    Raises:
        ResultsMissing: nothing of the job is committed yet.
    """
    if job is None:
        yield from _consoles(opened)
        return
    shown, committed, known = b"", False, dict[str, bytes]()
    while True:
        over = _is_over(opened, job)
        data = results.read_file(opened.bucket, opened.record.run_id, job, "log.txt", known)
        committed = committed or data is not None
        if data is not None and len(data) > len(shown):
            yield data[len(shown) :].decode(errors="replace")
            shown = data
        if not follow or over:
            break
        SystemClock().sleep(_FOLLOW_S)
    if not committed:
        raise ResultsMissing(
            f"The job {job} has committed no log yet.",
            hint=f"See the box's console: gpurun logs {opened.record.run_id}",
        )


def _consoles(opened: Opened) -> Iterator[str]:
    run_id = opened.record.run_id
    for box in opened.record.plan.boxes:
        data = opened.bucket.get(f"runs/{run_id}/boxes/{box.name}/console.log")
        yield f"== {box.name}\n"
        yield data.decode(errors="replace") if data else "(nothing yet)\n"


def _is_over(opened: Opened, job: str) -> bool:
    """Whether no box will write more of it; one that a spot notice cut may go on in another."""
    status = results.read_statuses(opened.bucket, opened.record.run_id, [job]).get(job, {})
    return recovery.is_over(status) or _has_ended(opened.runner().look(), opened.record.expires_at)


def _has_ended(seen: Snapshot, expires_at: datetime) -> bool:
    """Whether the run has no box, and gets none: of one that is taken down nothing is launched."""
    ending = seen.stage in (Stage.TEARING_DOWN, Stage.CLEAN)
    gone = ("terminated", "not launched") if ending else ("terminated",)
    over = seen.stage is Stage.CLEAN or seen.at > expires_at + _OVERDUE
    return over or all(box.state in gone for box in seen.boxes)
