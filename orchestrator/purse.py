"""A run's money: what it reserves, in the budget it shares and in its log, and how its lines end.

Write down, then act: nothing is made before its line is in both. The budget comes first, so that
a controller that dies in between has taken too much room, never too little; whoever comes next
finds the line there by run and name, and takes no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Literal

from orchestrator import run
from orchestrator.aws.bucket import Bucket
from orchestrator.bill import (
    LISTS_PER_BOX,
    LISTS_PER_LOOK,
    Bill,
    BillLine,
    S3Use,
    Span,
    bill,
    listing_bytes,
    s3_line,
    s3_usd,
    writes_of,
)
from orchestrator.budget_log import BudgetLog
from orchestrator.errors import ApiError, BudgetError
from orchestrator.ledger import Ledger, LedgerEntry
from orchestrator.money import ZERO, usd
from orchestrator.plan import RESULTS
from orchestrator.run import Event, EventKind, RunLog, RunRecord

if TYPE_CHECKING:
    from orchestrator.aws.session import Session
    from orchestrator.catalog import Catalog

LOOK_S = {"local": 1.0, "aws": 15.0}
"""Seconds between a controller's looks: the local cloud answers at once, AWS counts requests."""
NEVER_SHOWN = "its launch was not answered, and EC2 doesn't show it: at its worst case"
# EC2 shows a new instance within minutes and a terminated one for about an hour: what it doesn't
# show in between has never been.
_SHOWN = (timedelta(minutes=5), timedelta(minutes=50))
# A controller ends what outlives every deadline, and then itself.
_WATCHED_ON = timedelta(minutes=10)
# Entries of the log, and the report's reads, after S3 was counted.
_LAST_WRITES = 20
_KINDS: Mapping[EventKind, Literal["reserve", "settle"]] = {
    EventKind.RESERVED: "reserve",
    EventKind.SETTLED: "settle",
}


def ledger_of(record: RunRecord, events: Sequence[Event]) -> Ledger:
    """The run's money as its log tells it."""
    entries = [
        LedgerEntry(kind=_KINDS[event.kind], line=event.box, usd=event.usd)
        for event in events
        if event.kind in _KINDS and event.box is not None and event.usd is not None
    ]
    return Ledger.replay(record.plan.cap_usd, entries)


def budget_of(session: Session, record: RunRecord) -> BudgetLog | None:
    """The budget that the run shares, where it was when the run was put on record."""
    if record.budget is None or record.budget_region is None:
        return None
    name = record.bucket.removesuffix(record.region) + record.budget_region
    here = session.in_region(record.budget_region)
    return BudgetLog(Bucket(here, name), record.budget)


@dataclass(frozen=True)
class Purse:
    """Every line of a run, each reserved once and settled once, from wherever it is asked for."""

    record: RunRecord
    bucket: Bucket
    log: RunLog
    catalog: Catalog
    budget: BudgetLog | None = None

    def ledger(self) -> Ledger:
        """The run's money as its log tells it."""
        return ledger_of(self.record, self.log.read())

    def reserve(self, lines: Mapping[str, Decimal], now: datetime) -> None:
        """Write worst cases down, all or none of them; those that are written down stay.

        Raises:
            OverCap: they don't fit under the run's cap, or into what is free in its budget.
        """
        new, ledger = dict[str, Decimal](), self.ledger()
        for line, worst in lines.items():
            if line not in ledger.reserved and line not in ledger.settled:
                new[line], ledger = worst, ledger.reserve(line, worst)
        if new and self.budget:
            self.tell_budget(now)  # what it couldn't be told before is free for this
            self.budget.reserve(self.record.run_id, new, self.record.expires_at, now)
        for line, worst in new.items():
            self.log.decide(now, partial(self._reservation, line, worst))

    def _reservation(
        self, line: str, worst: Decimal, events: list[Event]
    ) -> dict[str, object] | None:
        """Judged again over all that another controller may have written meanwhile."""
        ledger = ledger_of(self.record, events)
        if line in ledger.reserved or line in ledger.settled:
            return None
        ledger.reserve(line, worst)
        return {"kind": EventKind.RESERVED, "box": line, "usd": worst}

    def settle(
        self, line: str, cost: Decimal, now: datetime, *, reason: str | None = None
    ) -> None:
        """Write down what a line cost, and give back what it didn't use.

        A budget that can't be told now is told at the run's end, or by `gpurun budget`: it keeps
        too little free till then, and must keep no run from being watched and ended.
        """
        if line not in self.ledger().settled:
            self.log.append(EventKind.SETTLED, now, box=line, usd=cost, reason=reason)
        with suppress(ApiError, BudgetError):
            self.tell_budget(now)

    def close(self, now: datetime) -> None:
        """Settle what is still open, now that nothing with the run's tag is left."""
        for line, worst in self.ledger().reserved.items():
            if line == RESULTS:
                self.settle(line, self.s3_cost(now)[1], now)
            elif self._never_was(line, now):
                self.settle(line, ZERO, now)
            else:
                self.settle(line, worst, now, reason=NEVER_SHOWN)

    def tell_budget(self, now: datetime) -> None:
        """Settle in the budget what is settled here; of a run that is clean, all the rest too."""
        if self.budget is None:
            return
        lines = dict(self.ledger().settled)
        if run.has(self.log.read(), EventKind.CLEAN):
            # Nothing is launched before its line is in the run's own log: this never was.
            share = self.budget.read().shares.get(self.record.run_id)
            lines = dict.fromkeys(share.reserved if share else (), ZERO) | lines
        if lines:
            self.budget.settle(self.record.run_id, lines, now, "ended")

    def _never_was(self, line: str, now: datetime) -> bool:
        """Whether it is certain that a box that nobody ever saw was not launched."""
        kinds = (EventKind.LAUNCHING, EventKind.REFUSED)
        tries = [e for e in self.log.read() if e.kind in kinds and e.line == line]
        if not tries or tries[-1].kind is EventKind.REFUSED:
            return True
        return _SHOWN[0] <= now - tries[-1].at <= _SHOWN[1]

    def s3_cost(self, now: datetime) -> tuple[S3Use | None, Decimal]:
        """What the run has in S3 and an upper estimate of its price; where it can't be listed,
        what was reserved."""
        reserved = self.record.plan.results_usd
        try:
            use = self.s3_use(now)
        except ApiError:
            return None, reserved
        return use, s3_usd(use, self.catalog.storage(self.record.region), reserved)

    def s3_use(self, now: datetime) -> S3Use:
        """By listing every version of everything that the run has written."""
        home, control = f"runs/{self.record.run_id}/", f"control/{self.record.run_id}/"
        found = [*self.bucket.versions(home), *self.bucket.versions(control)]
        newest = {key: size for key, size, is_newest in found if is_newest}
        told = ("/heartbeat.json", "/status.json")
        entries = sum(key.startswith(f"{home}events/") for key in newest)
        lists = LISTS_PER_LOOK + LISTS_PER_BOX * len(self.record.plan.boxes)
        beats = sum(size for key, size in newest.items() if key.endswith(told))
        return S3Use(
            stored_bytes=sum(size for _, size, _ in found),
            pulled_bytes=sum(n for key, n in newest.items() if key.startswith(f"{home}jobs/")),
            writes=sum(writes_of(size) for _, size, _ in found) + _LAST_WRITES,
            looks=self._looks(now),
            lists_per_look=lists,
            look_bytes=beats + listing_bytes(lists, entries),
            old_bytes=sum(size for _, size, is_newest in found if not is_newest),
        )

    def _looks(self, now: datetime) -> int:
        ends = [e.at for e in self.log.read() if e.kind is EventKind.CLEAN]
        ends += [now, self.record.expires_at + _WATCHED_ON]
        watched = min(ends) - self.record.created_at
        return int(max(watched.total_seconds(), 0) / LOOK_S[self.record.plan.cloud]) + 1

    def bill(self, spans: Sequence[Span], now: datetime) -> Bill:
        """What the run's boxes and its bucket have cost, against its cap."""
        plan, (line, warnings) = self.record.plan, self.s3_line(now)
        return bill(
            spans,
            self.catalog,
            self.record.region,
            cap_usd=plan.cap_usd,
            worst_case_usd=plan.worst_case_usd,
            now=now,
            s3=line,
            warnings=warnings,
        )

    def s3_line(self, now: datetime) -> tuple[BillLine, tuple[str, ...]]:
        """The bill's line, as settled or as it would be now, and what must be said loudly."""
        use, cost = self.s3_cost(now)
        cost = self.ledger().settled.get(RESULTS, cost)
        reserved = self.record.plan.results_usd
        warnings = (
            f"S3 costs {usd(cost)}, more than the {usd(reserved)} reserved for it: "
            "raise results_gb in the runbook",
        )
        line = s3_line(RESULTS, use, cost) if use else BillLine(RESULTS, "s3", "", ZERO, cost)
        return line, warnings if cost > reserved else ()
