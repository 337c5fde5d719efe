"""The run's books: what was reserved, which box has ended and why, what it cost, what was cut.

Every entry is made once, however often and from wherever it is asked for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from orchestrator import recovery, results
from orchestrator.bill import span_usd
from orchestrator.lives import GONE, UNLISTED, Life, lives_by_box, lives_of
from orchestrator.money import ZERO
from orchestrator.quote import SLACK, worst_from_now_usd
from orchestrator.run import Event, EventKind, RunLog, RunRecord, line_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.aws.boxes import BoxRecord
    from orchestrator.aws.bucket import Bucket
    from orchestrator.catalog import Catalog
    from orchestrator.ledger import Ledger
    from orchestrator.plan import PlannedBox
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

    def reserve_again(self, box: PlannedBox, attempt: int, now: datetime) -> None:
        """Write down what a later attempt may cost from now on; raises OverCap."""
        worst = worst_from_now_usd(
            box.worst_price_usd_per_hour,
            self.catalog.storage(self.record.region),
            box.disk_gb,
            box.cloud_at - now,
        )
        self.purse.reserve({line_of(box.name, attempt): worst}, now)

    def lives(self, records: Sequence[BoxRecord]) -> list[Life]:
        """Every life of the run's boxes, given what EC2 lists."""
        return lives_of(self.record, self.log.read(), records)

    def note_launched(self, life: Life, now: datetime) -> None:
        """Write an instance down that EC2 lists."""
        fields = {"launched_at": life.launched_at, "instance_type": life.instance_type}
        self._once(EventKind.LAUNCHED, life, now, zone=life.zone, **fields)

    def note_ended(
        self, records: Sequence[BoxRecord], now: datetime, *, over: bool = False
    ) -> None:
        """Write down and settle what EC2 calls terminated; `over`: also what it has forgotten."""
        found = self.lives(records)
        for life in found:  # all first: an attempt is settled by what the log knows of it
            if life.noted_at is None:
                self.note_launched(life, now)
        for life in found:
            if life.ended:
                self._end(life, now)
            elif life.state == GONE and over:
                self.end_gone(life, now)
        self._settle(records, now)
        if over:
            self._close_all(records)

    def end_gone(self, life: Life, now: datetime) -> None:
        """Write down that EC2 has forgotten it, and settle it at the most it can have cost."""
        self._end(replace(life, reason=UNLISTED, ended_at=None), now)
        self._settle((), now)

    def _end(self, life: Life, now: datetime) -> None:
        if not life.end_noted:
            latest = self.record.plan.box(life.box).cloud_at + SLACK  # what was reserved for it
            ended_at = life.ended_at or min(now, latest)
            self._once(EventKind.ENDED, life, now, ended_at=ended_at, reason=life.reason)

    def _once(self, kind: EventKind, life: Life, now: datetime, **fields: object) -> None:
        """Write an entry about a life unless the log has it."""

        def missing(events: Sequence[Event]) -> dict[str, object] | None:
            about = (life.box, life.attempt, life.instance_id or None)
            if any((e.box, e.nth, e.instance_id) == about for e in events if e.kind is kind):
                return None
            named = {"box": life.box, "attempt": life.attempt, "instance_id": about[2]}
            return {"kind": kind, **named, **fields}

        self.log.decide(now, missing)

    def _settle(self, records: Sequence[BoxRecord], now: datetime) -> None:
        """Settle each attempt all of whose instances have ended."""
        lines: dict[str, list[Life]] = {}
        for life in self.lives(records):
            lines.setdefault(life.line, []).append(life)
        settled = self.ledger().settled
        for line, lives in lines.items():
            if line not in settled and all(life.ended for life in lives):
                cost = sum((self._usd(life, now) for life in lives), ZERO)
                self.purse.settle(line, cost, now)

    def _usd(self, life: Life, now: datetime) -> Decimal:
        span = life.span(self.record.plan.box(life.box).disk_gb)
        return span_usd(span, self.catalog, self.record.region, now)

    def _close_all(self, records: Sequence[BoxRecord]) -> None:
        """The run is over: whatever its boxes didn't say any more is cut."""
        by_box = lives_by_box(self.lives(records))
        for box in (each.name for each in self.record.plan.boxes):
            lives = by_box.get(box)
            if not lives:
                self.close_jobs(box, recovery.without_a_life(began=True), begun_only=True)
            elif all(life.ended for life in lives):
                self.close_jobs(box, recovery.ENDED + lives[-1].reason)

    def close_jobs(self, box: str, reason: str, *, begun_only: bool = False) -> None:
        """Jobs that no box will go on with are cut: a job on another box may wait for them.

        Those that never said a word are left as they are with `begun_only`.
        """
        names = [job.name for job in self.record.plan.jobs_of(box)]
        statuses = results.read_statuses(self.bucket, self.record.run_id, names)
        for name in statuses if begun_only else names:
            status = statuses.get(name, {"job": name, "box": box, "state": "waiting"})
            if not recovery.is_over(status):
                cut = status | {"state": "cut", "reason": reason}
                cut.pop("complete", None)
                key = f"runs/{self.record.run_id}/jobs/{name}/status.json"
                self.bucket.put(key, json.dumps(cut).encode())
