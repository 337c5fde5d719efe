"""The sweep: what is past its expiry ends, what goes on stays, what names nothing is only told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.aws import sweep as sweeping
from orchestrator.aws.bucket import ensure_bucket
from orchestrator.aws.instances import find_boxes
from orchestrator.aws.leftover import global_ones, regional
from orchestrator.aws.role import ensure_kill_role
from orchestrator.aws.session import Session
from orchestrator.aws.stack import Leftover, leftovers
from orchestrator.aws.sweep import expired, look, overdue, sweep, undated
from orchestrator.aws.tags import EXPIRES_AT
from orchestrator.errors import ApiError
from tests.fake_clock import FakeClock

from .account import OTHER_RUN, RUN, Killed, Stack, killed_after, refuse, tags_of

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
    def half_blind(where: Session) -> list[Leftover]:
        if where.region == "eu-central-1":
            raise ApiError("a policy of the organisation forbids it")
        return regional(where)

    monkeypatch.setattr(sweeping, "regional", half_blind)
    sight = look(session, HERE)
    assert sight.unseen == {"eu-central-1": "a policy of the organisation forbids it"}
    assert "eu-central-1" not in sight.by_region
    assert sweep(session, clock.now(), HERE).unseen == sight.unseen


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

    def blind(where: Session) -> list[Leftover]:
        if where.region == "eu-central-1":
            raise ApiError("no")
        return regional(where)

    monkeypatch.setattr(sweeping, "regions", lambda _: list(HERE))
    monkeypatch.setattr(sweeping, "regional", blind)
    assert sweep(session, clock.now()).ended == ()
    monkeypatch.setattr(sweeping, "regional", regional)
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
