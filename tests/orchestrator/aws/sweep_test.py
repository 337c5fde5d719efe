"""The sweep: what is past its expiry ends, what goes on stays, what names nothing is only told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from orchestrator.aws import sweep as sweeping
from orchestrator.aws.bucket import ensure_bucket
from orchestrator.aws.instances import find_boxes
from orchestrator.aws.leftover import Seen, global_ones, seen_in
from orchestrator.aws.role import ensure_kill_role
from orchestrator.aws.session import Session
from orchestrator.aws.stack import Leftover, leftovers, teardown
from orchestrator.aws.sweep import expired, look, overdue, sweep, undated
from orchestrator.aws.tags import EXPIRES_AT
from orchestrator.errors import ApiError, CredentialsError
from orchestrator.localcloud.strict import StrictRules
from tests.fake_clock import FakeClock

from .account import (
    OTHER_RUN,
    RUN,
    Killed,
    Recorder,
    Stack,
    answer,
    killed_after,
    refuse,
    tags_of,
)

HERE = ("us-east-1", "eu-central-1")


def item(run: str, minutes: int | None, clock: FakeClock) -> Leftover:
    at = None if minutes is None else clock.now() + timedelta(minutes=minutes)
    return Leftover("vpc", "vpc-1", run, "", at)


def test_a_run_is_over_when_its_latest_expiry_is(clock: FakeClock) -> None:
    now = clock.now()
    items = [item("a", -5, clock), item("a", 5, clock), item("b", -1, clock), item("c", 0, clock)]
    assert expired(items, now) == ["b", "c"]
    assert expired(items, now + timedelta(minutes=5)) == ["a", "b", "c"]


def test_what_names_no_run_or_no_expiry_decides_nothing(clock: FakeClock) -> None:
    assert expired([item("", -5, clock), item("a", None, clock)], clock.now()) == []
    assert expired([item("a", None, clock), item("a", -1, clock)], clock.now()) == ["a"]


def test_an_expired_run_ends_and_the_one_that_goes_on_stays(
    build: Callable[[str], Stack], clock: FakeClock, session: Session
) -> None:
    old = build(RUN)
    old.arm(old.launch())
    clock.at += timedelta(hours=2)
    young = build(OTHER_RUN)
    young.arm(young.launch())
    clock.at += timedelta(hours=1, minutes=30)
    swept = sweep(session, clock.now(), HERE)
    assert (swept.ended, swept.going_on, swept.left) == ((RUN,), (OTHER_RUN,), ())
    assert leftovers(session, RUN) == []
    assert find_boxes(session, OTHER_RUN)[0].alive


def test_a_box_past_its_own_expiry_ends_though_its_run_goes_on(
    build: Callable[[str], Stack], clock: FakeClock, session: Session
) -> None:
    stack = build(RUN)
    early = replace(stack.tags, expires_at=clock.now() + timedelta(hours=1))
    short, long = stack.launch("short", tags=early), stack.launch("long")
    clock.at += timedelta(hours=1, minutes=1)
    assert [
        box.id for box in overdue(look(session, HERE).by_region["us-east-1"], clock.now())
    ] == [short.instance_id]
    elsewhere = sweep(session, clock.now(), HERE, only={OTHER_RUN})
    assert elsewhere.boxes == ()
    swept = sweep(session, clock.now(), HERE)
    assert (swept.ended, swept.going_on) == ((), (RUN,))
    assert [box.id for box in swept.boxes] == [short.instance_id]
    alive = {box.instance_id: box.alive for box in find_boxes(session, RUN)}
    assert alive == {short.instance_id: False, long.instance_id: True}
    assert sweep(session, clock.now(), HERE).boxes == ()


def test_a_box_that_can_not_be_ended_is_told_and_keeps_no_run_from_ending(
    build: Callable[[str], Stack], clock: FakeClock, session: Session
) -> None:
    ensure_kill_role(session, tags_of(OTHER_RUN, session, clock))
    clock.at += timedelta(hours=2)
    stack = build(RUN)
    stack.launch(tags=replace(stack.tags, expires_at=clock.now()))
    clock.at += timedelta(hours=2)
    with refuse(session, "TerminateInstances", "UnauthorizedOperation"):
        swept = sweep(session, clock.now(), HERE)
    assert (swept.ended, swept.boxes, [*swept.failed]) == ((OTHER_RUN,), (), [RUN])


def test_nothing_expired_means_nothing_done(
    build: Callable[[str], Stack], clock: FakeClock, session: Session
) -> None:
    build(RUN).launch()
    assert sweep(session, clock.now(), HERE).ended == ()
    assert find_boxes(session, RUN)[0].alive


def test_what_only_iam_still_has_is_swept_too(session: Session, clock: FakeClock) -> None:
    ensure_kill_role(session, tags_of(RUN, session, clock))
    clock.at += timedelta(hours=4)
    assert sweep(session, clock.now(), HERE).ended == (RUN,)
    assert leftovers(session, RUN) == []


def test_a_run_in_another_region_is_swept_there(session: Session, clock: FakeClock) -> None:
    there = session.in_region("eu-central-1")
    tags = tags_of(RUN, there, clock)
    there.client("ec2").create_vpc(
        CidrBlock="10.71.0.0/16", TagSpecifications=tags.spec("vpc", role="vpc")
    )
    clock.at += timedelta(hours=4)
    assert sweep(session, clock.now(), HERE).ended == (RUN,)
    assert leftovers(there, RUN) == []


def test_a_region_that_can_not_be_seen_is_not_called_empty(
    session: Session, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half_blind(where: Session) -> Seen:
        if where.region == "eu-central-1":
            raise ApiError("a policy of the organisation forbids it")
        return seen_in(where)

    monkeypatch.setattr(sweeping, "seen_in", half_blind)
    sight = look(session, HERE)
    assert sight.unseen == {"eu-central-1": "a policy of the organisation forbids it"}
    assert "eu-central-1" not in sight.by_region
    assert sweep(session, clock.now(), HERE).unseen == sight.unseen


SERVICES: list[tuple[Any, str, str]] = [
    ("ssm", "DescribeParameters", "SSM"),
    ("sqs", "ListQueues", "SQS"),
    ("scheduler", "ListSchedules", "scheduler"),
    ("ec2", "DescribeVpcEndpoints", "EC2 vpc-endpoint"),
    ("ec2", "DescribeTags", "EC2 tags"),
]


@pytest.mark.parametrize("service, operation, name", SERVICES)
@pytest.mark.parametrize("code", ["AccessDeniedException", "ThrottlingException", "OptInRequired"])
def test_what_bills_ends_though_another_service_of_its_region_does_not_answer(
    stack: Stack,
    clock: FakeClock,
    session: Session,
    service: Any,
    operation: str,
    name: str,
    code: str,
) -> None:
    box = stack.launch()
    stack.arm(box)
    clock.at += timedelta(hours=4)
    no = {"Error": {"Code": code, "Message": "no"}}
    with answer(session, operation, no, 400, service=service):
        swept = sweep(session, clock.now(), HERE)
    assert swept.ended == (RUN,)
    assert [*swept.unseen] == [f"us-east-1 {name}"]
    assert code in swept.unseen[f"us-east-1 {name}"]
    assert [box.alive for box in find_boxes(session, RUN)] == [False]
    assert sweep(session, clock.now(), HERE).failed == {}
    assert leftovers(session) == []


def test_credentials_that_one_service_refuses_keep_no_run_from_ending(
    build: Callable[[str], Stack], clock: FakeClock, session: Session
) -> None:
    for run in (RUN, OTHER_RUN):
        build(run).launch()
    clock.at += timedelta(hours=4)
    no = {"Error": {"Code": "InvalidClientTokenId", "Message": "no"}}
    with (
        answer(session, "DescribeParameters", no, 400, service="ssm"),
        answer(session, "ListSchedules", no, 400, service="scheduler"),
    ):
        swept = sweep(session, clock.now(), HERE)
        assert [item.kind for run in (RUN, OTHER_RUN) for item in left_of(session, run)] == []
    assert [*swept.unseen] == ["us-east-1 scheduler", "us-east-1 SSM"]
    assert [*swept.failed] == [RUN, OTHER_RUN]
    assert "DescribeParameters: InvalidClientTokenId" in swept.failed[RUN]


def left_of(session: Session, run_id: str) -> list[Leftover]:
    """Of what the services tell that still take the credentials."""
    return [*seen_in(session).items, *global_ones(session, run_id)]


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_region_that_refuses_credentials_is_not_seen_and_all_of_them_are_an_error(
    clock: FakeClock, session: Session, monkeypatch: pytest.MonkeyPatch, *, everywhere: bool
) -> None:
    def refused(where: Session) -> Seen:
        if everywhere or where.region == "eu-central-1":
            raise CredentialsError("AWS refused the credentials")
        return seen_in(where)

    monkeypatch.setattr(sweeping, "seen_in", refused)
    if everywhere:
        with pytest.raises(CredentialsError):
            look(session, HERE)
    else:
        assert look(session, HERE).unseen == {"eu-central-1": "AWS refused the credentials"}


def test_a_region_whose_instances_can_not_be_seen_is_not_seen(
    stack: Stack, clock: FakeClock, session: Session
) -> None:
    with refuse(session, "DescribeInstances", "UnauthorizedOperation"):
        sight = look(session, HERE)
    assert [*sight.unseen] == ["us-east-1"]
    assert [*sight.by_region] == ["eu-central-1"]


def test_the_account_is_looked_at_in_all_its_regions(session: Session) -> None:
    assert {"us-east-1", "us-west-2", "eu-central-1"} <= set(sweeping.regions(session))


def test_the_local_cloud_is_looked_at_where_runs_have_been(session: Session) -> None:
    local = replace(session, cloud="local")
    assert sweeping.regions(local) == ["us-east-1"]
    ensure_bucket(local.in_region("eu-north-1"))
    assert sweeping.regions(local) == ["eu-north-1", "us-east-1"]


def test_what_iam_has_of_a_run_elsewhere_is_not_taken_from_under_its_box(
    session: Session, clock: FakeClock
) -> None:
    """A sweep that is kept to one region, or that can't see one, must leave those roles."""
    there = session.in_region("eu-central-1")
    ensure_kill_role(there, tags_of(RUN, there, clock))
    clock.at += timedelta(hours=4)
    assert sweep(session, clock.now(), ["us-east-1"]).ended == ()
    assert [item.home for item in global_ones(session)] == ["eu-central-1"]
    assert sweep(session, clock.now(), HERE).ended == (RUN,)
    assert global_ones(session) == []


def test_a_role_that_does_not_say_where_its_run_is_stays_while_a_region_is_unseen(
    session: Session, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    arn = ensure_kill_role(session, tags_of(RUN, session, clock))
    session.client("iam").untag_role(RoleName=arn.rpartition("/")[2], TagKeys=["gpurun:bucket"])
    clock.at += timedelta(hours=4)

    def blind(where: Session) -> Seen:
        if where.region == "eu-central-1":
            raise ApiError("no")
        return seen_in(where)

    monkeypatch.setattr(sweeping, "regions", lambda _: list(HERE))
    monkeypatch.setattr(sweeping, "seen_in", blind)
    assert sweep(session, clock.now()).ended == ()
    monkeypatch.setattr(sweeping, "seen_in", seen_in)
    assert sweep(session, clock.now()).ended == (RUN,)


def test_who_may_not_list_roles_still_sees_the_boxes(
    build: Callable[[str], Stack],
    clock: FakeClock,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build(RUN).launch()

    def denied(_: Session) -> list[Leftover]:
        raise ApiError("iam:ListRoles is not allowed")

    monkeypatch.setattr(sweeping, "global_ones", denied)
    sight = look(session, HERE)
    assert sight.unseen == {"IAM": "iam:ListRoles is not allowed"}
    assert "instance" in {item.kind for item in sight.by_region["us-east-1"]}


def test_a_run_that_can_not_be_ended_does_not_keep_the_next_from_ending(
    build: Callable[[str], Stack], clock: FakeClock, session: Session
) -> None:
    stuck = build(RUN)
    stuck.launch()
    ensure_kill_role(session, tags_of(OTHER_RUN, session, clock))
    clock.at += timedelta(hours=4)
    with refuse(session, "TerminateInstances", "UnauthorizedOperation"):
        swept = sweep(session, clock.now(), HERE)
    assert "TERMINATION UNCONFIRMED" in swept.failed[RUN]
    assert leftovers(session, OTHER_RUN) == []
    assert sweep(session, clock.now(), HERE).failed == {}
    assert leftovers(session) == []


def test_all_boxes_are_told_to_end_before_any_is_waited_for(
    build: Callable[[str], Stack],
    clock: FakeClock,
    session: Session,
    rules: StrictRules,
    record: Callable[[Any, str], Recorder],
) -> None:
    """However long one takes, and though it takes all the time that there is."""
    boxes = [build(run).launch() for run in (RUN, OTHER_RUN)]
    rules.shutdown_s = 5000
    clock.at += timedelta(hours=4)
    told = record("ec2", "TerminateInstances")
    seen: list[str] = []

    def first_wait(seconds: float) -> None:
        if not seen:
            seen.extend(name for call in told.calls for name in call["InstanceIds"])
        clock.sleep(seconds)

    patience = replace(session.patience, sleep=first_wait)
    sweep(replace(session, patience=patience), clock.now(), HERE)
    assert {*seen} == {box.instance_id for box in boxes}


def test_what_has_been_ending_for_long_comes_last(
    build: Callable[[str], Stack],
    clock: FakeClock,
    session: Session,
    rules: StrictRules,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may take all the time that there is, each time."""
    build(RUN).launch()
    rules.shutdown_s = 86_400
    clock.at += timedelta(hours=4)
    sweep(session.within(1), clock.now(), HERE)
    build(OTHER_RUN).launch()
    clock.at += timedelta(hours=4)
    torn: list[str] = []

    def noted(where: Session, run_id: str, now: datetime) -> list[Leftover]:
        torn.append(run_id)
        return teardown(where, run_id, now)

    monkeypatch.setattr(sweeping, "teardown", noted)
    sweep(session.within(1), clock.now(), HERE)
    assert torn == [OTHER_RUN, RUN]


@pytest.mark.parametrize("damage", ["", "soon", "2026-13-01", "2026-11-29T20:00:00"])
def test_a_run_without_a_readable_expiry_is_told_and_not_ended(
    session: Session, clock: FakeClock, damage: str
) -> None:
    tags = tags_of(RUN, session, clock)
    vpc = session.client("ec2").create_vpc(
        CidrBlock="10.71.0.0/16", TagSpecifications=tags.spec("vpc", role="vpc")
    )["Vpc"]["VpcId"]
    session.client("ec2").create_tags(Resources=[vpc], Tags=[{"Key": EXPIRES_AT, "Value": damage}])
    clock.at += timedelta(days=30)
    items = look(session, HERE).by_region["us-east-1"]
    assert undated(items) == [RUN]
    swept = sweep(session, clock.now(), HERE)
    assert (swept.ended, swept.going_on) == ((), (RUN,))


def test_a_terminated_box_that_is_still_listed_does_not_count(
    build: Callable[[str], Stack], clock: FakeClock, session: Session
) -> None:
    build(RUN).launch()
    clock.at += timedelta(hours=4)
    sweep(session, clock.now(), HERE)
    assert [box.state for box in find_boxes(session, RUN)] == ["terminated"]
    assert look(session, HERE).by_region["us-east-1"] == []
    assert sweep(session, clock.now(), HERE).ended == ()


def test_a_sweep_ends_a_run_from_any_part_of_it(
    build: Callable[[str], Stack], clock: FakeClock, session: Session
) -> None:
    """Killed again and again, one deletion further each time, it comes to an end all the same."""
    stack = build(RUN)
    stack.arm(stack.launch())
    clock.at += timedelta(hours=4)
    killed = 0
    while True:
        try:
            with killed_after(session, killed + 1):
                sweep(session, clock.now(), HERE)
            break
        except Killed:
            killed += 1
    assert killed > 3
    assert leftovers(session) == []
