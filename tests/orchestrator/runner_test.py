"""The order of things, in an account behind the strict rules, on a clock only waiting moves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import pytest

from orchestrator import start
from orchestrator.aws import schedules
from orchestrator.aws.bucket import Bucket
from orchestrator.aws.session import Session
from orchestrator.aws.stack import leftovers
from orchestrator.aws.waits import Patience
from orchestrator.catalog import load_catalog
from orchestrator.errors import ApiError, CapacityError, QuotaError
from orchestrator.localcloud.strict import StrictRules, strict_aws
from orchestrator.payload import Payload
from orchestrator.plan import make_plan
from orchestrator.run import EventKind, RunRecord
from orchestrator.runbook import load_runbook
from orchestrator.runner import Runner
from orchestrator.snapshot import Stage
from orchestrator.start import start_run

SMOKE = Path(__file__).resolve().parents[2] / "runbooks" / "smoke.yaml"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d", "us-east-1f")


class Clock:
    """Time that passes only while somebody waits; `at_wait` is what happens meanwhile."""

    def __init__(self) -> None:
        self.at = datetime(2026, 12, 1, 20, 0, tzinfo=UTC)
        self.at_wait: Any = lambda: None

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self.at_wait()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rules(clock: Clock) -> Iterator[StrictRules]:
    with strict_aws(StrictRules(now=clock.now)) as in_force:
        yield in_force


@pytest.fixture
def session(rules: StrictRules, clock: Clock) -> Session:
    patience = Patience(sleep=clock.sleep, clock=clock.monotonic)
    return Session("aws", "us-east-1", "123456789012", patience=patience, boto=boto3.Session())


def without_payload(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """What boxes would fetch is empty: it is slow to pack."""
    payload = Payload(folder / "payload.tar.gz", "0" * 64)
    payload.path.write_bytes(b"")
    monkeypatch.setattr(start, "build_payload", lambda *_, **__: payload)


@pytest.fixture
def begun(
    session: Session, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Bucket, RunRecord]:
    """A run on record, nothing built yet, and nothing in its payload."""
    without_payload(monkeypatch, tmp_path)
    return begin(session, clock)


@pytest.fixture
def begun_for_real(session: Session, clock: Clock) -> tuple[Bucket, RunRecord]:
    """The same with its payload; import it `as begun`."""
    return begin(session, clock)


def begin(session: Session, clock: Clock) -> tuple[Bucket, RunRecord]:
    plan = make_plan(load_runbook(SMOKE), now=clock.now(), catalog=load_catalog(), cloud="local")
    return start_run(session, plan, clock, boxes_are_processes=False)


@pytest.fixture
def runner(session: Session, begun: tuple[Bucket, RunRecord], clock: Clock) -> Runner:
    return another(session, begun, clock)


def another(session: Session, begun: tuple[Bucket, RunRecord], clock: Clock) -> Runner:
    """A controller elsewhere, that knows what the bucket knows."""
    return Runner(session, *begun, clock)


def shut_down(session: Session) -> None:
    """The box powers itself off."""
    ec2 = session.client("ec2")
    for page in ec2.describe_instances()["Reservations"]:
        ec2.terminate_instances(InstanceIds=[i["InstanceId"] for i in page["Instances"]])


def kinds(runner: Runner) -> list[EventKind]:
    return [event.kind for event in runner.log.read()]


def test_every_act_is_written_down_before_or_right_after(
    runner: Runner, session: Session, clock: Clock
) -> None:
    clock.at_wait = lambda: shut_down(session)
    seen = runner.drive()
    assert kinds(runner) == [
        EventKind.RESERVED,
        EventKind.RESERVED,
        EventKind.BUILDING,
        EventKind.LAUNCHING,
        EventKind.LAUNCHED,
        EventKind.ARMED,
        EventKind.ENDED,
        EventKind.SETTLED,
        EventKind.TEARING_DOWN,
        EventKind.SETTLED,
        EventKind.CLEAN,
    ]
    assert seen.stage is Stage.CLEAN
    assert Decimal(0) < seen.spent_usd < seen.worst_case_usd
    assert leftovers(session, runner.record.run_id) == []


def test_the_reserved_sum_is_the_plan_s_worst_case(runner: Runner) -> None:
    runner.launch_all()
    reserved = [e.usd for e in runner.log.read() if e.kind is EventKind.RESERVED]
    assert sum(usd for usd in reserved if usd) == runner.record.plan.worst_case_usd


def test_a_box_that_has_ended_is_never_launched_again(
    runner: Runner, session: Session, begun: tuple[Bucket, RunRecord], clock: Clock
) -> None:
    runner.launch_all()
    shut_down(session)
    another(session, begun, clock).drive()
    assert len(runner.instances()) == 1
    assert kinds(runner).count(EventKind.LAUNCHED) == 1


def test_launching_twice_leaves_one_box_its_guard_and_one_schedule(
    runner: Runner, session: Session, begun: tuple[Bucket, RunRecord], clock: Clock
) -> None:
    runner.launch_all()
    another(session, begun, clock).launch_all()
    assert len(runner.instances()) == 1
    kill = f"gpurun-{runner.record.run_id}-one"
    assert schedules.find_kills(session, runner.record.run_id) == [kill, f"{kill}.tag"]


def test_when_no_zone_has_the_type_nothing_is_left(
    runner: Runner, session: Session, rules: StrictRules
) -> None:
    rules.capacity = {("g6.xlarge", zone): 0 for zone in ZONES}
    with pytest.raises(CapacityError, match="No room for one"):
        runner.drive()
    assert leftovers(session, runner.record.run_id) == []


def test_a_quota_too_small_is_told_before_anything_is_made(
    session: Session, rules: StrictRules, clock: Clock
) -> None:
    rules.vcpu_limits["L-DB2E81BA"] = 2
    plan = make_plan(load_runbook(SMOKE), now=clock.now(), catalog=load_catalog(), cloud="local")
    with pytest.raises(QuotaError, match="L-DB2E81BA"):
        start_run(session, plan, clock, boxes_are_processes=False)
    assert session.client("s3").list_buckets()["Buckets"] == []


def test_a_box_that_can_t_be_armed_is_ended_at_once(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise ApiError("the scheduler refuses")

    monkeypatch.setattr("orchestrator.aws.schedules.ensure_kill", refused)
    with pytest.raises(ApiError):
        runner.launch_all()
    assert [box.alive for box in runner.instances()] == [False]


def test_a_box_that_can_t_have_a_guard_is_not_launched(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise ApiError("the scheduler refuses")

    monkeypatch.setattr("orchestrator.aws.schedules.ensure_guard", refused)
    with pytest.raises(ApiError, match="the scheduler refuses"):
        runner.launch_all()
    assert runner.instances() == []
    monkeypatch.undo()
    runner.launch_all()  # as when the run is resumed
    assert [box.alive for box in runner.instances()] == [True]


def test_down_in_the_middle_of_a_launch_wins(
    runner: Runner, session: Session, begun: tuple[Bucket, RunRecord], clock: Clock
) -> None:
    """`down` lists the boxes while the launch of one is under way."""
    other = another(session, begun, clock)
    runner.on_step = lambda words: other.finish() if words.startswith("launching") else None
    runner.drive()
    assert [box for box in runner.instances() if box.alive] == []
    assert leftovers(session, runner.record.run_id) == []


def test_a_box_that_outlives_every_deadline_is_ended_by_the_controller(
    runner: Runner, session: Session
) -> None:
    runner.poll_s = 120
    runner.drive()  # the box never powers off, and moto's schedules never fire
    assert runner.clock.now() > runner.record.expires_at
    assert [box.alive for box in runner.instances()] == [False]


def test_a_second_teardown_changes_nothing(runner: Runner, session: Session) -> None:
    runner.launch_all()
    runner.finish()
    before = kinds(runner)
    runner.finish()
    assert kinds(runner) == before


def test_what_appears_after_a_clean_teardown_is_still_taken_down(
    runner: Runner, session: Session, begun: tuple[Bucket, RunRecord], clock: Clock
) -> None:
    runner.launch_all()
    runner.finish()
    late = another(session, begun, clock)
    late.log.append(EventKind.BUILDING, clock.now())
    session.client("ec2").create_vpc(
        CidrBlock="10.0.0.0/16",
        TagSpecifications=runner.tags.spec("vpc", role="vpc"),
    )
    late.finish()
    assert leftovers(session, runner.record.run_id) == []
