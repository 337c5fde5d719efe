"""Several runs, each with two controllers, under one budget, in every order of things.

Controllers reserve, retry and settle, see an old state of the world, die between the budget's
entry and their own, and ask at the same moment. After each step no cap has been passed, every
line is in the budget once, and every beginning of each log is a valid log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orchestrator.aws.bucket import Bucket
from orchestrator.budget import STALE_AFTER, Budget, BudgetEntry
from orchestrator.budget_log import BudgetLog
from orchestrator.catalog import load_catalog
from orchestrator.errors import BudgetError, OverCap
from orchestrator.ledger import Ledger
from orchestrator.purse import Purse, ledger_of
from orchestrator.run import Event, EventKind, RunLog, RunRecord

from .run_test import NOW, Shelf

ENDS = NOW + timedelta(hours=3)
RUN_CAP = Decimal(5)
RUNS = ("a", "b")
LINES = ("l4", "l4#2", "l40s", "l40s#2", "s3:results")
usd = st.integers(0, 800).map(lambda cents: Decimal(cents) / 100)
caps = st.integers(0, 2000).map(lambda cents: Decimal(cents) / 100)
runs = st.sampled_from(RUNS)
lines = st.sampled_from(LINES)
controllers = st.sampled_from((0, 1))


class Died(BaseException):
    """As SIGKILL."""


@dataclass
class Plan:
    cap_usd: Decimal = RUN_CAP


@dataclass
class Record:
    """What a purse reads of a run's record."""

    run_id: str
    plan: Plan
    expires_at: datetime = ENDS


class World(Shelf):
    """Objects, and what happens just before the next one is written."""

    name = "bucket"

    def __init__(self) -> None:
        super().__init__()
        self.before_put: Callable[[str], None] = lambda _: None

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        before, self.before_put = self.before_put, lambda _: None
        before(key)
        return super().put(key, data, if_absent=if_absent)


class Runs(RuleBasedStateMachine):
    """What controllers of several runs may do, and people with the budget's cap."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.bucket = cast(Bucket, self.world)
        self.now = NOW
        self.purses: dict[tuple[str, int], Purse] = {}
        self.real: dict[tuple[str, str], Decimal] = {}

    @initialize(cap=caps)
    def make(self, cap: Decimal) -> None:
        BudgetLog(self.bucket, "shared").make(cap, NOW)
        for run in RUNS:
            for number in (0, 1):
                self.start_again(run, number)

    @rule(run=runs, number=controllers)
    def start_again(self, run: str, number: int) -> None:
        """On a machine that has read nothing yet."""
        record = cast(RunRecord, Record(run, Plan()))
        log, shared = RunLog(self.bucket, run), BudgetLog(self.bucket, "shared")
        self.purses[run, number] = Purse(record, self.bucket, log, load_catalog(), shared)

    def price(self, run: str, line: str, wanted: Decimal) -> Decimal:
        """A line's worst case follows from the plan: whoever asks, asks for the same."""
        return self.real.setdefault((run, line), wanted)

    @rule(run=runs, number=controllers, line=lines, wanted=usd)
    def reserve(self, run: str, number: int, line: str, wanted: Decimal) -> None:
        self._try(lambda: self._reserve(run, number, line, wanted))

    @rule(run=runs, line=lines, wanted=usd, ahead=st.integers(0, 2), dies=st.booleans())
    def reserve_and_die(
        self, run: str, line: str, wanted: Decimal, ahead: int, dies: bool
    ) -> None:
        """The process ends before its next write, or right after the budget's entry."""

        def die(_: str) -> None:
            if ahead == 0:
                raise Died
            self.world.before_put = die_in_own_log

        def die_in_own_log(key: str) -> None:
            if dies and key.startswith("runs/"):
                raise Died

        self.world.before_put = die
        self._try(lambda: self._reserve(run, 0, line, wanted))
        self.world.before_put = lambda _: None
        self.start_again(run, 0)

    @rule(run=runs, line=lines, wanted=usd, other=runs, their=lines, theirs=usd)
    def reserve_at_once(
        self, run: str, line: str, wanted: Decimal, other: str, their: str, theirs: Decimal
    ) -> None:
        """Another controller, of this run or of another, is quicker by a hair."""

        def quicker(_: str) -> None:
            self._try(lambda: self._reserve(other, 1, their, theirs))

        self.world.before_put = quicker
        self._try(lambda: self._reserve(run, 0, line, wanted))
        self.world.before_put = lambda _: None

    @rule(run=runs, number=controllers, line=lines, part=st.integers(0, 100))
    def settle(self, run: str, number: int, line: str, part: int) -> None:
        purse = self.purses[run, number]
        worst = purse.ledger().reserved.get(line)
        if worst is not None:
            purse.settle(line, worst * part / 100, self.now)

    @rule(run=runs, number=controllers)
    def end(self, run: str, number: int) -> None:
        """Nothing is left of it: what was let in and never written down never was."""
        purse = self.purses[run, number]
        if not purse.ledger().reserved:
            purse.log.append(EventKind.CLEAN, self.now)
            purse.tell_budget(self.now)
            share = BudgetLog(self.bucket, "shared").read().shares.get(run)
            assert share is None or not share.reserved

    @rule(cap=caps)
    def recap(self, cap: Decimal) -> None:
        log = BudgetLog(self.bucket, "shared")
        self._try(lambda: log.write(lambda budget: budget.recap(cap, self.now)))

    @rule(run=runs)
    def sweep_stale(self, run: str) -> None:
        log = BudgetLog(self.bucket, "shared")
        late = ENDS + STALE_AFTER * 2
        if run in log.read().shares:
            log.write(lambda budget: budget.settle_stale(run, late))

    @invariant()
    def no_cap_is_passed(self) -> None:
        ledger = self._budget().ledger
        assert ledger.reserved_usd + ledger.settled_usd <= ledger.cap_usd
        for run in RUNS:
            own = self._own(run)
            assert own.reserved_usd + own.settled_usd <= RUN_CAP

    @invariant()
    def every_line_is_let_in_once_and_before_it_is_in_its_own_log(self) -> None:
        times = Counter(
            (e.run, k) for e in self._entries() if e.kind == "reserve" for k in e.lines
        )
        assert set(times.values()) <= {1}
        for run in RUNS:
            own = self._own(run)
            assert {(run, line) for line in (*own.reserved, *own.settled)} <= set(times)

    @invariant()
    def every_beginning_of_a_log_is_valid(self) -> None:
        entries = self._entries()
        for upto in range(len(entries)):
            ledger = Budget.replay("shared", entries[:upto]).ledger
            assert ledger.reserved_usd + ledger.settled_usd <= ledger.cap_usd
            assert Budget.replay("shared", entries[:upto]).after(entries[upto]) == Budget.replay(
                "shared", entries[: upto + 1]
            )
        for run in RUNS:
            events = RunLog(self.bucket, run).read()
            for upto in range(len(events)):
                own = self._ledger(events[:upto])
                assert own.reserved_usd + own.settled_usd <= RUN_CAP

    @invariant()
    def every_controller_reads_the_same(self) -> None:
        for (run, _), purse in self.purses.items():
            assert purse.ledger() == self._own(run)
            assert purse.budget is not None
            assert purse.budget.read() == self._budget()

    def _reserve(self, run: str, number: int, line: str, wanted: Decimal) -> None:
        worst = self.price(run, line, wanted)
        self.purses[run, number].reserve({line: worst}, self.now)

    def _try(self, act: Callable[[], Any]) -> None:
        """Refusals and deaths are part of life; anything else is a bug."""
        self.now += timedelta(seconds=1)
        with suppress(OverCap, BudgetError, Died):
            act()

    def _entries(self) -> list[BudgetEntry]:
        return [
            BudgetEntry.model_validate_json(data)
            for key, data in sorted(self.world.objects.items())
            if key.startswith("budgets/")
        ]

    def _budget(self) -> Budget:
        return Budget.replay("shared", self._entries())

    def _own(self, run: str) -> Ledger:
        return self._ledger(RunLog(self.bucket, run).read())

    def _ledger(self, events: list[Event]) -> Ledger:
        return ledger_of(cast(RunRecord, Record("", Plan())), events)


Runs.TestCase.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
test_no_cap_is_passed_in_any_order_of_things = pytest.mark.timeout(120)(Runs.TestCase)
