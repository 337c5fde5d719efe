"""The run's books: what was reserved, which box has ended and why, what it cost, what was cut.

Every entry is made once, however often and from wherever it is asked for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from orchestrator import results, run
from orchestrator.bill import Span, span_usd
from orchestrator.run import Event, EventKind, RunLog, RunRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.aws.boxes import BoxRecord
    from orchestrator.aws.bucket import Bucket
    from orchestrator.catalog import Catalog
    from orchestrator.ledger import Ledger
    from orchestrator.purse import Purse


@dataclass(frozen=True)
class Books:
    """Bookkeeping of one run, in its log and its jobs' statuses."""

    record: RunRecord
    bucket: Bucket
    log: RunLog
    catalog: Catalog
    purse: Purse

    def ledger(self) -> Ledger:
        """The run's money as its log tells it."""
        return self.purse.ledger()

    def reserve(self, now: datetime) -> None:
        """Write the worst case of each of the plan's lines down, unless it is; raises OverCap."""
        self.purse.reserve(self.record.plan.reservations(), now)

    def note_ended(
        self, records: Sequence[BoxRecord], now: datetime, *, over: bool = False
    ) -> None:
        """Write down and settle boxes that EC2 calls terminated; `over`: also those it forgot."""
        by_box = {box.box: box for box in records}
        for event in [e for e in self.log.read() if e.kind is EventKind.LAUNCHED]:
            box = by_box.get(event.box or "")
            if run.has(self.log.read(), EventKind.SETTLED, event.box):
                continue
            if box is not None and not box.alive:
                self._settle(event, box.ended_at or now, box.reason, now)
            elif box is None and over:
                cloud_at = self.record.plan.box(event.box or "").cloud_at
                self._settle(event, min(cloud_at, now), "no longer listed by EC2", now)

    def _settle(self, launched: Event, ended_at: datetime, reason: str, now: datetime) -> None:
        self._close_jobs(launched.box or "", reason)
        if not run.has(self.log.read(), EventKind.ENDED, launched.box):
            self.log.append(
                EventKind.ENDED,
                now,
                box=launched.box,
                ended_at=ended_at,
                reason=reason,
            )
        planned = self.record.plan.box(launched.box or "")
        span = Span(
            planned.name,
            launched.instance_type or planned.instance,
            planned.disk_gb,
            launched.launched_at or launched.at,
            ended_at,
        )
        usd = span_usd(span, self.catalog, self.record.region, now)
        self.purse.settle(planned.name, usd, now)

    def _close_jobs(self, box: str, reason: str) -> None:
        """Jobs whose box ended without a word are cut: a job on another box may wait for them."""
        names = [job.name for job in self.record.plan.jobs_of(box)]
        statuses = results.read_statuses(self.bucket, self.record.run_id, names)
        for name in names:
            status = statuses.get(name, {"job": name, "box": box, "state": "waiting"})
            if status["state"] not in results.OVER and not status.get("complete"):
                cut = status | {"state": "cut", "reason": f"its box ended: {reason}"}
                cut.pop("complete", None)
                key = f"runs/{self.record.run_id}/jobs/{name}/status.json"
                self.bucket.put(key, json.dumps(cut).encode())
