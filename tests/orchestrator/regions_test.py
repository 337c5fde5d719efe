"""A region without room: where the run begins anew, at what price, and when there is nowhere."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import boto3
import pytest

from orchestrator import journey, start
from orchestrator.aws.stack import leftovers
from orchestrator.catalog import load_catalog
from orchestrator.console.terminal import make_console
from orchestrator.errors import CapacityError, QuotaError
from orchestrator.localcloud.strict import StrictRules, strict_aws
from orchestrator.opened import Opened
from orchestrator.plan import Plan, make_plan
from orchestrator.regions import Try, plan_elsewhere
from orchestrator.runbook import Runbook, load_runbook

from .runner_test import without_payload

NOW = datetime(2026, 12, 1, 20, 0, tzinfo=UTC)
FIRST, SECOND, THIRD = "us-east-1", "us-east-2", "eu-central-1"
RUNBOOK = """
name: far
cap_usd: {cap}
regions: [{regions}]
results_gb: 0.1
boxes:
  one: {{instance: g6.xlarge, hours: 1h, drain: 5m, cloud_margin: 5m}}
jobs:
  count: {{box: one, command: "true", results: [out]}}
"""


@pytest.fixture
def runbook(tmp_path: Path) -> Any:
    def write(cap: str = "5", regions: Sequence[str] = (FIRST, SECOND, THIRD)) -> Runbook:
        path = tmp_path / "far.yaml"
        path.write_text(RUNBOOK.format(cap=cap, regions=", ".join(regions)))
        return load_runbook(path)

    return write


def elsewhere(book: Runbook, *tries: Try, cap_usd: Decimal | None = None) -> Plan:
    return plan_elsewhere(
        book,
        tries,
        now=NOW,
        catalog=load_catalog(),
        cloud="local",
        cap_usd=cap_usd,
        allow_stale_prices=False,
    )


def first_plan(book: Runbook) -> Plan:
    return make_plan(book, now=NOW, catalog=load_catalog(), cloud="local")


def test_the_next_region_is_planned_under_what_is_left_of_the_cap(runbook: Any) -> None:
    plan = elsewhere(runbook(), Try(FIRST, "full", Decimal("0.07")))
    assert (plan.region, plan.cap_usd) == (SECOND, Decimal("4.93"))
    assert plan.worst_case_usd <= plan.cap_usd


def test_it_is_priced_anew(runbook: Any) -> None:
    book = runbook(regions=(FIRST, THIRD))
    there = elsewhere(book, Try(FIRST, "full"))
    assert there.worst_case_usd > first_plan(book).worst_case_usd


def test_a_given_cap_stands_in_for_the_runbook_s(runbook: Any) -> None:
    plan = elsewhere(runbook(), Try(FIRST, "full", Decimal(1)), cap_usd=Decimal(4))
    assert plan.cap_usd == Decimal(3)


def test_a_region_that_is_too_dear_for_the_rest_is_passed_over_with_its_numbers(
    runbook: Any,
) -> None:
    near = elsewhere(runbook(regions=(FIRST, SECOND)), Try(FIRST, "full"))
    cap = near.worst_case_usd + Decimal("0.02")
    book = runbook(regions=(FIRST, THIRD, SECOND))
    plan = elsewhere(book, Try(FIRST, "full", Decimal("0.01")), cap_usd=cap)
    assert plan.region == SECOND
    with pytest.raises(CapacityError, match=rf"{THIRD}: the worst case, \$\d"):
        elsewhere(book, Try(FIRST, "full"), Try(SECOND, "full"), cap_usd=cap)


def test_when_nothing_is_left_of_the_cap_nothing_is_planned(runbook: Any) -> None:
    with pytest.raises(CapacityError, match="nothing is left of the cap"):
        elsewhere(runbook(), Try(FIRST, "full", Decimal(5)))


def test_when_no_region_is_left_every_try_is_told(runbook: Any) -> None:
    with pytest.raises(CapacityError) as told:
        elsewhere(
            runbook(regions=(FIRST, SECOND)),
            Try(FIRST, "No room for one", Decimal("0.03")),
            Try(SECOND, "No room for one either"),
        )
    assert f"{FIRST} ($0.0300): No room for one" in told.value.message
    assert f"{SECOND} ($0.00): No room for one either" in told.value.message


def test_a_plan_says_where_else_the_run_may_go(runbook: Any) -> None:
    assert first_plan(runbook()).next_regions == (SECOND, THIRD)
    assert first_plan(runbook(regions=(FIRST,))).next_regions == ()
    nowhere_in = runbook(regions=("eu-west-1", FIRST, SECOND))
    assert (first_plan(nowhere_in).region, first_plan(nowhere_in).next_regions) == (
        FIRST,
        (SECOND,),
    )


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StrictRules]:
    without_payload(monkeypatch, tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setattr("orchestrator.start.caller_cidr", lambda _: None)
    # The account in this process shows at once what was made; the clock here is the real one.
    monkeypatch.setattr("orchestrator.aws.session.Session.shows_within_s", 0.0)
    with strict_aws(StrictRules()) as in_force:
        yield in_force


def up(book: Runbook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Opened]:
    """`gpurun up --detach --cloud aws`, on the account in this process; the runs that it began."""
    begun: list[Opened] = []
    begin = journey.begin

    def note(*args: Any, **kwargs: Any) -> Opened:
        begun.append(begin(*args, **kwargs))
        return begun[-1]

    monkeypatch.setattr(journey, "begin", note)
    now = datetime.now(UTC)
    how: Any = {"now": now, "catalog": load_catalog(), "cloud": "aws"}
    try:
        journey.up(
            make_plan(book, **how),
            make_console(),
            elsewhere=lambda tries: plan_elsewhere(
                book, tries, cap_usd=None, allow_stale_prices=False, **how
            ),
            to=tmp_path,
            detach=True,
        )
    finally:
        monkeypatch.undo()
    return begun


def full(rules: StrictRules, *regions: str) -> None:
    for region in regions:
        rules.capacity |= {("g6.xlarge", f"{region}{zone}"): 0 for zone in "abcdef"}


def test_a_run_begins_anew_where_there_is_room(
    rules: StrictRules,
    runbook: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    full(rules, FIRST)
    first, second = up(runbook(), monkeypatch, tmp_path)
    assert (first.record.region, second.record.region) == (FIRST, SECOND)
    assert leftovers(first.session, first.record.run_id) == []
    assert [box.alive for box in second.runner().instances()] == [True]
    spent = first.runner().books.ledger().settled_usd
    assert second.record.plan.cap_usd == Decimal(5) - spent
    assert f"{FIRST} has no room" in capsys.readouterr().out


def test_a_next_region_without_quota_is_passed_over(
    rules: StrictRules, runbook: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    full(rules, FIRST)
    real: Any = start.start_run

    def start_there(session: Any, *args: Any, **kwargs: Any) -> Any:
        if session.region == SECOND:
            raise QuotaError("0 vCPUs there")
        return real(session, *args, **kwargs)

    monkeypatch.setattr(journey, "start_run", start_there)
    begun = up(runbook(), monkeypatch, tmp_path)
    assert [opened.record.region for opened in begun] == [FIRST, THIRD]


def test_only_when_every_region_is_full_there_is_no_room(
    rules: StrictRules, runbook: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    full(rules, FIRST, SECOND)
    with pytest.raises(CapacityError) as told:
        up(runbook(regions=(FIRST, SECOND)), monkeypatch, tmp_path)
    assert f"g6.xlarge in {FIRST}a" in told.value.message
    assert f"g6.xlarge in {SECOND}a" in told.value.message
    assert boto3.client("ec2", FIRST).describe_instances()["Reservations"] == []


def test_sigterm_says_what_goes_on_and_exits_with_143(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def drive() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    opened = SimpleNamespace(
        record=SimpleNamespace(run_id="far-261201-200000-abcd"),
        runner=lambda _: SimpleNamespace(drive=drive),
    )
    with pytest.raises(SystemExit) as left:
        journey.go(cast(Opened, opened), make_console(), to=tmp_path)
    assert left.value.code == 143
    assert "goes on without this terminal" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
