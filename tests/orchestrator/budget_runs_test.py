"""Runs under a budget, in an account behind the strict rules: admitted, retried, ended, found."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from moto.ec2.models import ec2_backends

from orchestrator.aws.bucket import Bucket, ensure_bucket
from orchestrator.aws.session import Session
from orchestrator.aws.stack import leftovers
from orchestrator.aws.sweep import sweep
from orchestrator.budget_log import BudgetLog, find_budget, list_budgets, make_budget
from orchestrator.budgets import look_at, look_at_all
from orchestrator.catalog import load_catalog
from orchestrator.errors import BudgetError, CapacityError, OverCap
from orchestrator.localcloud.strict import StrictRules
from orchestrator.plan import RESULTS, Plan, make_plan
from orchestrator.purse import NEVER_SHOWN
from orchestrator.run import EventKind
from orchestrator.runbook import load_runbook
from orchestrator.runner import Runner
from orchestrator.start import start_run

from .runner_test import SMOKE, ZONES, Clock, clock, rules, session, shut_down, without_payload

__all__ = ["clock", "rules", "session"]

FIRST_ENTRY = "budgets/shared/000001.json"


class Died(BaseException):
    """As SIGKILL: nothing catches it."""


@pytest.fixture(autouse=True)
def _no_payload(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_payload(monkeypatch, tmp_path)


@pytest.fixture
def plan(clock: Clock) -> Plan:
    return make_plan(load_runbook(SMOKE), now=clock.now(), catalog=load_catalog(), cloud="local")


@pytest.fixture
def budget(session: Session, plan: Plan, clock: Clock) -> BudgetLog:
    """Room for one run and a half."""
    return make_budget(session, "shared", plan.worst_case_usd * 3 / 2, clock.now())


@pytest.fixture
def begin(session: Session, plan: Plan, budget: BudgetLog, clock: Clock) -> Callable[[], Runner]:
    """Another run on record under the budget."""

    def begun() -> Runner:
        shared = find_budget(session, "shared")
        made = start_run(session, plan, clock, boxes_are_processes=False, budget=shared)
        return Runner(session, *made, clock)

    return begun


def elsewhere(runner: Runner) -> Runner:
    """A controller on another machine, that knows what the bucket knows."""
    return Runner(runner.session, runner.bucket, runner.record, runner.clock)


def test_a_run_that_does_not_fit_into_the_budget_is_refused_before_it_is_on_record(
    begin: Callable[[], Runner], budget: BudgetLog
) -> None:
    first = begin()
    first.launch_all()
    with pytest.raises(OverCap, match="of the budget shared"):
        begin()
    assert list(budget.bucket.folders("runs/")) == [first.record.run_id]


def test_of_two_runs_on_record_only_one_gets_the_last_dollars_and_the_other_ends_clean(
    begin: Callable[[], Runner], budget: BudgetLog, session: Session
) -> None:
    first, second = begin(), begin()
    first.launch_all()
    with pytest.raises(OverCap):
        second.launch_all()
    assert second.instances() == []
    assert second.look().stage == "clean"
    assert list(budget.read().shares) == [first.record.run_id]


def test_what_a_run_did_not_use_is_there_for_the_next(
    begin: Callable[[], Runner], budget: BudgetLog, session: Session, clock: Clock
) -> None:
    first = begin()
    clock.at_wait = lambda: shut_down(session)
    seen = first.drive()
    ledger = budget.read().ledger
    assert ledger.reserved_usd == 0
    assert ledger.settled_usd == first.purse.ledger().settled_usd == seen.spent_usd
    begin().drive()
    row = look_at(session, "shared", clock.now())
    assert [run.state for run in row.runs] == ["settled", "settled"]
    assert row.free_usd == row.cap_usd - row.settled_usd > 0


def damage(session: Session, budget: BudgetLog) -> bytes:
    """What its first entry was."""
    was = budget.bucket.get(FIRST_ENTRY) or b""
    session.client("s3").delete_object(Bucket=budget.bucket.name, Key=FIRST_ENTRY)
    return was


def test_a_budget_that_is_damaged_meanwhile_keeps_no_run_from_its_end(
    begin: Callable[[], Runner], budget: BudgetLog, session: Session, clock: Clock
) -> None:
    runner, said = begin(), list[str]()
    runner.on_step = said.append

    def damaged() -> None:
        damage(session, budget)
        shut_down(session)

    clock.at_wait = damaged
    assert runner.drive().stage == "clean"
    assert runner.purse.ledger().reserved == {}
    assert leftovers(session, runner.record.run_id) == []
    runner.finish()  # `down`, typed again
    told = [words for words in said if "missing" in words and "gpurun budget shared" in words]
    assert len(told) == 2


def lose(runner: Runner) -> None:
    """EC2 takes away what lives."""
    shut_down(runner.session)
    for box in runner.instances():
        reason = ec2_backends["123456789012"]["us-east-1"].get_instance(box.instance_id)
        reason.state_reason.code = reason.state_reason.message = "Server.SpotInstanceTermination"


def test_a_box_that_is_lost_while_the_budget_is_damaged_is_launched_once_it_is_mended(
    begin: Callable[[], Runner], budget: BudgetLog, session: Session, clock: Clock
) -> None:
    runner, was, said = begin(), list[bytes](), list[str]()
    runner.on_step = said.append

    def happens() -> None:
        if not was:
            was.append(damage(session, budget))
            lose(runner)
        elif len(runner.instances()) > 1:
            shut_down(session)
        elif any("trying again" in words for words in said):
            budget.bucket.put(FIRST_ENTRY, was[0])

    clock.at_wait = happens
    assert runner.drive().stage == "clean"
    assert [box.attempt for box in runner.instances()] == [1, 2]
    assert budget.read().ledger.settled_usd == runner.purse.ledger().settled_usd


def test_a_box_that_is_lost_while_the_budget_stays_damaged_ends_with_its_time(
    begin: Callable[[], Runner], budget: BudgetLog, session: Session, clock: Clock
) -> None:
    runner, happened = begin(), list[bytes]()

    def happens() -> None:
        if not happened:
            happened.append(damage(session, budget))
            lose(runner)

    clock.at_wait = happens
    seen = runner.drive()
    assert (seen.stage, seen.jobs[0].state) == ("clean", "cut")
    assert "its time is over" in seen.jobs[0].reason
    assert len(runner.instances()) == 1


def died_after_the_budget_s_entry(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(runner.log, "decide", die)
        with pytest.raises(Died):
            runner.launch_all()


def test_a_reservation_whose_controller_died_before_its_own_entry_is_taken_over_by_resume(
    begin: Callable[[], Runner], budget: BudgetLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = begin()
    died_after_the_budget_s_entry(runner, monkeypatch)
    assert runner.log.read() == []
    assert budget.read().ledger.reserved_usd == runner.record.plan.worst_case_usd
    elsewhere(runner).launch_all()
    assert budget.read().ledger.reserved_usd == runner.record.plan.worst_case_usd
    assert runner.purse.ledger().reserved_usd == runner.record.plan.worst_case_usd


def test_a_reservation_whose_controller_died_before_its_own_entry_is_freed_by_down(
    begin: Callable[[], Runner], budget: BudgetLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = begin()
    died_after_the_budget_s_entry(runner, monkeypatch)
    elsewhere(runner).finish()
    ledger = budget.read().ledger
    assert ledger.reserved_usd == ledger.settled_usd == 0


def test_a_settlement_whose_controller_died_is_made_by_whoever_looks_next(
    begin: Callable[[], Runner],
    budget: BudgetLog,
    session: Session,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = begin()
    runner.launch_all()
    with monkeypatch.context() as patch:
        patch.setattr(runner.purse.budget, "settle", lambda *_: None)
        runner.finish()
    assert budget.read().ledger.reserved_usd == runner.record.plan.worst_case_usd
    row = look_at(session, "shared", clock.now())
    assert row.reserved_usd == 0
    assert row.settled_usd == runner.purse.ledger().settled_usd


def test_a_run_that_was_swept_counts_at_its_worst_case_until_down_says_what_it_cost(
    begin: Callable[[], Runner], session: Session, clock: Clock
) -> None:
    runner = begin()
    runner.launch_all()
    clock.at += timedelta(minutes=2)
    shut_down(session)
    clock.at = runner.record.expires_at + timedelta(minutes=20)
    sweep(session, clock.now())
    waiting = look_at(session, "shared", clock.now())
    assert waiting.runs[0].state == "not ended yet"
    assert waiting.reserved_usd == runner.record.plan.worst_case_usd
    clock.at = runner.record.expires_at + timedelta(hours=1, seconds=1)
    stale = look_at(session, "shared", clock.now())
    assert stale.runs[0].state == "settled at its worst case"
    assert stale.settled_usd == runner.record.plan.worst_case_usd
    elsewhere(runner).finish()
    ended = look_at(session, "shared", clock.now())
    assert ended.runs[0].state == "settled"
    assert ended.settled_usd == runner.purse.ledger().settled_usd < stale.settled_usd


def test_a_run_that_is_not_on_record_is_shown_with_its_expiry_and_never_freed_by_a_guess(
    session: Session, budget: BudgetLog, clock: Clock
) -> None:
    run, ends = "lost-261201-200000-ab2c", clock.now() + timedelta(hours=1)
    worst = budget.read().cap_usd
    budget.reserve(run, {"l4": worst}, ends, clock.now())
    row = look_at(session, "shared", clock.now())
    assert [(r.run, r.state, r.expires_at) for r in row.runs] == [(run, "not on record", ends)]
    clock.at = ends + timedelta(hours=2)
    assert look_at(session, "shared", clock.now()).settled_usd == worst


def test_runs_in_two_regions_share_one_budget(
    session: Session, budget: BudgetLog, begin: Callable[[], Runner], clock: Clock
) -> None:
    far = session.in_region("eu-west-1")
    ensure_bucket(far)
    found = find_budget(far, "shared")
    assert found.region == "us-east-1"
    begin().launch_all()
    with pytest.raises(OverCap):
        found.reserve("far", {"l4": budget.read().cap_usd}, clock.now(), clock.now())
    assert [row.name for row in look_at_all(far, clock.now())] == ["shared"]


def test_a_budget_s_home_is_the_same_from_every_region(session: Session, clock: Clock) -> None:
    for region in ("us-west-2", "eu-west-1"):
        ensure_bucket(session.in_region(region))
    for region in ("us-west-2", "ap-south-1"):
        name = f"from-{region}"
        made = make_budget(session.in_region(region), name, Decimal(5), clock.now())
        assert made.region == "eu-west-1"
    assert [log.name for log in list_budgets(session)] == ["from-ap-south-1", "from-us-west-2"]


def test_a_budget_that_was_made_in_two_places_lets_nothing_in(
    session: Session, budget: BudgetLog, clock: Clock
) -> None:
    far = ensure_bucket(session.in_region("eu-west-1"))
    BudgetLog(far, "shared").make(Decimal(5), clock.now())
    with pytest.raises(BudgetError, match="two budgets"):
        find_budget(session, "shared")


def test_changing_a_cap_is_the_command_that_made_it(session: Session, clock: Clock) -> None:
    for cap in ("5", "7.50", "6"):
        make_budget(session, "changes", Decimal(cap), clock.now())
        assert find_budget(session, "changes").read().cap_usd == Decimal(cap)


def test_without_a_budget_nothing_of_one_is_written(
    session: Session, plan: Plan, clock: Clock
) -> None:
    bucket, record = start_run(session, plan, clock, boxes_are_processes=False)
    runner = Runner(session, bucket, record, clock)
    runner.launch_all()
    runner.finish()
    assert list(bucket.keys("budgets/")) == []


def settled(runner: Runner) -> dict[str, Decimal]:
    return dict(runner.purse.ledger().settled)


def test_a_launch_that_was_refused_everywhere_costs_nothing(
    begin: Callable[[], Runner], budget: BudgetLog, rules: StrictRules
) -> None:
    runner = begin()
    rules.capacity = {("g6.xlarge", zone): 0 for zone in ZONES}
    with pytest.raises(CapacityError):
        runner.launch_all()
    assert settled(runner)["one"] == 0
    assert budget.read().ledger.settled_usd == settled(runner)[RESULTS]


@pytest.mark.parametrize("waited, free", [(0, False), (10, True), (120, False)])
def test_a_launch_that_nobody_saw_is_free_only_while_ec2_would_still_show_it(
    begin: Callable[[], Runner], clock: Clock, waited: int, free: bool
) -> None:
    runner = begin()
    runner.books.reserve(clock.now())
    runner.log.append(EventKind.LAUNCHING, clock.now(), box="one", zone="us-east-1a")
    clock.at += timedelta(minutes=waited)
    runner.finish()
    assert settled(runner)["one"] == (0 if free else runner.record.plan.box("one").worst_case_usd)
    reasons = [e.reason for e in runner.log.read() if e.kind is EventKind.SETTLED]
    assert (NEVER_SHOWN in reasons) is not free


def test_two_controllers_of_one_run_do_not_pass_its_cap_with_two_lines_at_once(
    begin: Callable[[], Runner], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = begin()
    runner.books.reserve(clock.now())
    cap = runner.record.plan.cap_usd
    free = runner.purse.ledger().free_usd
    make_budget(runner.session, "shared", cap * 4, clock.now())
    other = elsewhere(runner)
    real = runner.log.decide

    def slower(*args: Any) -> Any:
        other.purse.reserve({"one#2": free}, clock.now())
        return real(*args)

    monkeypatch.setattr(runner.log, "decide", slower)
    with pytest.raises(OverCap):
        runner.purse.reserve({"one#3": free}, clock.now())
    assert runner.purse.ledger().reserved_usd == cap


def test_the_home_of_a_run_s_budget_is_on_its_record(begin: Callable[[], Runner]) -> None:
    record = begin().record
    assert (record.budget, record.budget_region) == ("shared", "us-east-1")
    shared = begin().purse.budget
    assert shared is not None
    assert isinstance(shared.bucket, Bucket)
    assert shared.bucket.name.endswith("-us-east-1")
