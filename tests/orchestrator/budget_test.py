"""A budget's decisions, and a log that lets in exactly what fits, however many ask at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import cast

import pytest

from orchestrator.aws.bucket import Bucket
from orchestrator.budget import STALE_AFTER, Budget, BudgetEntry, check_name
from orchestrator.budget_log import BudgetLog
from orchestrator.errors import BudgetError, OverCap

from .run_test import Shelf

NOW = datetime(2026, 12, 1, 20, 0, tzinfo=UTC)
ENDS = NOW + timedelta(hours=3)
TEN = Decimal(10)


class SafeShelf(Shelf):
    """A shelf that several threads may use, as S3 is."""

    name = "gpurun-123456789012-us-east-1"

    def __init__(self) -> None:
        super().__init__()
        self._one_at_a_time = threading.Lock()
        self.before_put: Callable[[], None] = lambda: None

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        before, self.before_put = self.before_put, lambda: None
        before()
        with self._one_at_a_time:
            return super().put(key, data, if_absent=if_absent)


@pytest.fixture
def shelf() -> SafeShelf:
    return SafeShelf()


@pytest.fixture
def log(shelf: SafeShelf) -> BudgetLog:
    made = another(shelf)
    made.make(TEN, NOW)
    return made


def another(shelf: SafeShelf) -> BudgetLog:
    """The same budget, seen by somebody who has read nothing yet."""
    return BudgetLog(cast(Bucket, shelf), "shared")


def budget(*entries: BudgetEntry) -> Budget:
    first = BudgetEntry(at=NOW, kind="cap", cap_usd=TEN)
    return Budget.replay("shared", [first, *entries])


def reserved(run: str, **lines: int) -> BudgetEntry:
    amounts = {line: Decimal(usd) for line, usd in lines.items()}
    return BudgetEntry(at=NOW, kind="reserve", run=run, expires_at=ENDS, lines=amounts)


def test_what_one_run_has_reserved_another_cannot_have() -> None:
    full = budget(reserved("a", l4=6))
    with pytest.raises(OverCap, match=r"\$10\.00 only \$4\.00 is free \(\$6\.00 res") as refused:
        full.reserve("b", {"l4": Decimal(5)}, ENDS, NOW)
    assert refused.value.exit_code == 4
    assert "gpurun budget shared --cap 11.00" in refused.value.hint


def test_a_run_s_lines_are_let_in_all_or_none(log: BudgetLog) -> None:
    with pytest.raises(OverCap):
        log.reserve("a", {"one": Decimal(6), "two": Decimal(5)}, ENDS, NOW)
    assert log.read().shares == {}


def test_a_line_is_let_in_once_however_often_it_is_asked_for(log: BudgetLog) -> None:
    for _ in range(3):
        log.reserve("a", {"l4": Decimal(6)}, ENDS, NOW)
    assert log.read().ledger.reserved_usd == 6


def test_what_a_settled_line_did_not_use_is_free_for_a_retry_and_for_others(
    log: BudgetLog,
) -> None:
    log.reserve("a", {"l4": TEN}, ENDS, NOW)
    log.settle("a", {"l4": Decimal(2)}, NOW, "ended")
    log.reserve("a", {"l4#2": Decimal(5)}, ENDS, NOW)
    log.reserve("b", {"l4": Decimal(3)}, ENDS, NOW)
    assert log.read().ledger.free_usd == 0


def test_a_settled_line_is_not_reserved_again_by_a_controller_that_comes_late(
    log: BudgetLog,
) -> None:
    log.reserve("a", {"l4": Decimal(6)}, ENDS, NOW)
    log.settle("a", {"l4": Decimal(0)}, NOW, "ended")
    log.reserve("a", {"l4": Decimal(6)}, ENDS, NOW)
    assert log.read().ledger.reserved_usd == 0


def test_a_line_that_cost_more_than_was_reserved_is_kept_as_it_is(log: BudgetLog) -> None:
    log.reserve("a", {"l4": Decimal(6)}, ENDS, NOW)
    log.settle("a", {"l4": Decimal(12)}, NOW, "ended")
    assert log.read().ledger.settled_usd == 12
    with pytest.raises(OverCap):
        log.reserve("b", {"l4": Decimal("0.01")}, ENDS, NOW)


def test_the_cap_never_goes_below_what_is_reserved_and_spent(log: BudgetLog) -> None:
    log.reserve("a", {"one": Decimal(4), "two": Decimal(3)}, ENDS, NOW)
    log.settle("a", {"one": Decimal("1.005")}, NOW, "ended")
    with pytest.raises(BudgetError, match=r"\$3\.00 .* reserved and \$1\.01 are spent") as refused:
        log.write(lambda budget: budget.recap(Decimal(4), NOW))
    assert refused.value.exit_code == 24
    assert "--cap 4.01" in refused.value.hint
    log.write(lambda budget: budget.recap(Decimal("4.01"), NOW))
    assert another_of(log).read().cap_usd == Decimal("4.01")


def another_of(log: BudgetLog) -> BudgetLog:
    return BudgetLog(log.bucket, log.name)


def test_a_run_nobody_ended_stays_reserved_until_it_cannot_cost_more_then_counts_in_full() -> None:
    seen = budget(reserved("a", l4=6))
    assert seen.settle_stale("a", ENDS + STALE_AFTER) is None
    late = ENDS + STALE_AFTER + timedelta(seconds=1)
    entry = seen.settle_stale("a", late)
    assert entry is not None
    after = seen.after(entry)
    assert after.ledger.settled == {"a/l4": Decimal(6)}
    assert after.shares["a"].is_guess


def test_what_the_run_s_own_log_says_later_puts_a_worst_case_right() -> None:
    seen = budget(reserved("a", l4=6))
    late = ENDS + STALE_AFTER * 2
    for entry in (seen.settle_stale("a", late), seen.settle("a", {"l4": Decimal(2)}, late, "")):
        assert entry is not None
        seen = seen.after(entry)
    assert seen.ledger.settled == {"a/l4": Decimal(2)}
    assert not seen.shares["a"].is_guess


def test_of_many_who_ask_at_once_for_the_last_dollars_as_many_get_one_as_there_are(
    shelf: SafeShelf, log: BudgetLog
) -> None:
    everybody = threading.Barrier(16)

    def ask(number: int) -> bool:
        mine = another(shelf)
        mine.read()
        everybody.wait()
        try:
            mine.reserve(f"run-{number}", {"l4": Decimal(1)}, ENDS, NOW)
        except OverCap:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        let_in = list(pool.map(ask, range(16)))
    assert sum(let_in) == 10
    assert another(shelf).read().ledger.reserved_usd == TEN


def test_who_loses_the_race_for_the_last_dollar_reads_again_and_is_refused(
    shelf: SafeShelf, log: BudgetLog
) -> None:
    other = another(shelf)
    shelf.before_put = lambda: other.reserve("b", {"l4": TEN}, ENDS, NOW)
    with pytest.raises(OverCap, match=r"\$10\.00 reserved"):
        log.reserve("a", {"l4": TEN}, ENDS, NOW)
    assert list(another(shelf).read().shares) == ["b"]


def test_a_cap_is_not_lowered_below_what_was_let_in_at_the_same_moment(
    shelf: SafeShelf, log: BudgetLog
) -> None:
    other = another(shelf)
    shelf.before_put = lambda: other.reserve("b", {"l4": Decimal(8)}, ENDS, NOW)
    with pytest.raises(BudgetError):
        log.write(lambda budget: budget.recap(Decimal(5), NOW))


def test_a_second_settlement_of_the_same_asks_nobody(shelf: SafeShelf, log: BudgetLog) -> None:
    log.reserve("a", {"l4": Decimal(6)}, ENDS, NOW)
    log.settle("a", {"l4": Decimal(1)}, NOW, "ended")
    shelf.objects.clear()
    log.settle("a", {"l4": Decimal(1)}, NOW, "ended")


@pytest.mark.parametrize("data", [None, b"", b"{}", b"[]"])
def test_nothing_is_let_in_by_a_log_with_a_hole_or_an_entry_that_cant_be_read(
    shelf: SafeShelf, log: BudgetLog, data: bytes | None
) -> None:
    log.reserve("a", {"l4": Decimal(9)}, ENDS, NOW)
    log.reserve("a", {"l4#2": Decimal(1)}, ENDS, NOW)
    key = "budgets/shared/000002.json"
    del shelf.objects[key]
    if data is not None:
        shelf.objects[key] = data
    with pytest.raises(BudgetError, match=r"000002\.json"):
        another(shelf).reserve("b", {"l4": Decimal(9)}, ENDS, NOW)


def test_a_budget_that_was_never_made_names_the_command_that_makes_it(shelf: SafeShelf) -> None:
    with pytest.raises(BudgetError) as refused:
        another(shelf).read()
    assert "gpurun budget shared --cap USD" in refused.value.hint


@pytest.mark.parametrize("name", ["", "../x", "A", "1st", "a/b", "a" * 33, "a\n", "é"])
def test_what_cannot_name_a_budget_never_becomes_part_of_a_key(name: str) -> None:
    with pytest.raises(BudgetError):
        check_name(name)
