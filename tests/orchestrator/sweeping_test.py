"""`gpurun sweep` in words and as JSON: what stands, what it costs, what is over, what to type."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator import sweeping
from orchestrator.aws import sweep
from orchestrator.aws.kinds import Bills
from orchestrator.aws.leftover import Leftover
from orchestrator.aws.session import Session
from orchestrator.aws.stack import leftovers
from orchestrator.aws.tags import EXPIRES_AT
from orchestrator.catalog import load_catalog
from orchestrator.errors import ApiError, ClockWrong, TeardownError
from orchestrator.runner import Runner
from orchestrator.standing import usd_per_hour

from .runner_test import Clock, begun, clock, rules, runner, session

__all__ = ["begun", "clock", "rules", "runner", "session"]


@pytest.fixture(autouse=True)
def one_account(session: Session, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "open_cloud", lambda *_: session)
    monkeypatch.setattr(sweeping, "SystemClock", lambda: clock)
    monkeypatch.setattr(sweep, "regions", lambda _: ["us-east-1"])


@pytest.fixture
def launched(runner: Runner) -> Runner:
    runner.launch_all()
    return runner


def past(runner: Runner, clock: Clock) -> None:
    clock.at = runner.record.expires_at


def said(capsys: pytest.CaptureFixture[str], *, yes: bool = False) -> str:
    sweeping.sweep_all("aws", yes=yes, as_json=False)
    return capsys.readouterr().out


def test_what_goes_on_is_listed_with_what_it_costs_and_left_alone(
    launched: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    (box,) = launched.instances()
    out = said(capsys, yes=True)
    assert f"goes on  {launched.record.run_id}  $" in out
    line = next(
        line for line in out.splitlines() if box.instance_id in line and "    inst" in line
    )
    price = (box.price_usd_per_hour or Decimal(0)) + Decimal("0.005")
    assert f"us-east-1  running  ${price.quantize(Decimal('0.01'), 'ROUND_CEILING')}/h" in line
    assert "Nothing is past its expiry." in out
    assert launched.instances()[0].alive


def test_the_free_things_of_a_run_are_one_line_for_a_person_and_all_for_a_machine(
    launched: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line for line in said(capsys).splitlines() if line.startswith("    ")]
    sweeping.sweep_all("aws", yes=False, as_json=True)
    rows = json.loads(capsys.readouterr().out)["found"]
    free = [row for row in rows if Decimal(row["usd_per_hour"]) == 0]
    assert lines[-1] == f"    + {len(free)} things that cost nothing"
    assert len(lines) == len(rows) - len(free) + 1


def test_a_box_past_its_own_expiry_is_told_and_yes_ends_it_alone(
    launched: Runner, session: Session, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    (box,) = launched.instances()
    early = f"{clock.now() - timedelta(minutes=3):%FT%TZ}"
    session.client("ec2").create_tags(
        Resources=[box.instance_id], Tags=[{"Key": EXPIRES_AT, "Value": early}]
    )
    out = said(capsys)
    assert "running, expired 3 min ago" in out
    assert "0 runs and 1 boxes of other runs are past their expiry; that costs $" in out
    assert "End them: gpurun sweep --yes" in out
    out = said(capsys, yes=True)
    assert f"Ended box {box.instance_id} of {launched.record.run_id}" in out
    assert not launched.instances()[0].alive
    assert "vpc" in {item.kind for item in leftovers(session, launched.record.run_id)}


def test_what_is_over_says_what_it_costs_until_ended_and_yes_ends_it(
    launched: Runner, session: Session, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    past(launched, clock)
    out = said(capsys)
    assert "1 runs are past their expiry; that costs $" in out
    assert "/h until ended." in out
    assert "End them: gpurun sweep --yes" in out
    assert launched.instances()[0].alive
    assert f"Ended 1 runs: {launched.record.run_id}" in said(capsys, yes=True)
    assert leftovers(session) == []
    assert "Nothing is past its expiry." in said(capsys, yes=True)


def test_a_look_at_the_local_cloud_is_not_taken_for_one_at_the_account(
    launched: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "local" not in said(capsys)
    sweeping.sweep_all("local", yes=False, as_json=False)
    assert "local cloud; for an account: gpurun sweep --cloud aws" in capsys.readouterr().out


def test_a_clock_that_is_ahead_ends_nobody_s_run(
    launched: Runner, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = SimpleNamespace(now=lambda: clock.now() + timedelta(days=1))
    monkeypatch.setattr(sweeping, "SystemClock", lambda: ahead)
    with pytest.raises(ClockWrong):
        sweeping.sweep_all("aws", yes=True, as_json=False)
    assert launched.instances()[0].alive


def test_a_region_that_could_not_be_looked_at_is_named_and_is_an_alarm(
    launched: Runner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def blind(_: Session) -> list[Leftover]:
        raise ApiError("a policy of the organisation forbids it")

    monkeypatch.setattr(sweep, "seen_in", blind)
    with pytest.raises(TeardownError, match="could not look at us-east-1: a policy"):
        sweeping.sweep_all("aws", yes=False, as_json=False)
    assert "could not look at us-east-1" in capsys.readouterr().out


def test_a_run_without_an_expiry_is_told_loudly_with_the_command_that_ends_it(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    tags: list[Any] = [
        {"Key": "gpurun:run", "Value": "old-261129-190000-ab2c"},
        {"Key": EXPIRES_AT, "Value": "?"},
    ]
    session.client("ec2").create_vpc(
        CidrBlock="10.0.0.0/16", TagSpecifications=[{"ResourceType": "vpc", "Tags": tags}]
    )
    words = "NO EXPIRY  old-261129-190000-ab2c  free  end it: gpurun down old-261129-190000-ab2c"
    assert words in said(capsys)
    with pytest.raises(TeardownError, match="no readable expiry: gpurun down old-"):
        sweeping.sweep_all("aws", yes=True, as_json=False)


def test_for_a_machine_everything_has_its_region_and_its_price(
    launched: Runner, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    past(launched, clock)
    sweeping.sweep_all("aws", yes=True, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["unseen"] == {}
    assert found["all_prices_known"]
    (box,) = [row for row in found["found"] if row["kind"] == "instance"]
    assert box["region"] == "us-east-1"
    assert box["expired"]
    assert 0 < Decimal(box["usd_per_hour"]) < Decimal(found["expired_usd_per_hour"])


CATALOG = load_catalog()


def price(bills: Bills | None, region: str = "us-east-1") -> Decimal | None:
    return usd_per_hour(Leftover("x", "x-1", "r", bills=bills), region, CATALOG)


def test_a_thing_costs_what_its_tag_says_else_what_the_list_says() -> None:
    tagged = Bills(instance_type="g6.4xlarge", price_usd_per_hour=Decimal("0.7"), addresses=1)
    assert price(tagged) == Decimal("0.705")
    assert price(Bills(instance_type="g6.4xlarge")) == Decimal("1.3232")
    assert (
        price(Bills(disk_gb=730)) == Decimal(730) * CATALOG.storage("us-east-1").gp3_gb_month / 730
    )
    assert price(Bills()) == 0
    assert price(Bills(), "mars-1") == 0


def test_what_nobody_knows_the_price_of_is_not_called_free() -> None:
    assert price(None) is None
    assert price(Bills(instance_type="z9.huge")) is None
