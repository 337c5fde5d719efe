"""The sweep: what is past its expiry ends, what goes on stays, what names nothing is only told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.aws import sweep as sweeping
from orchestrator.aws.bucket import ensure_bucket
from orchestrator.aws.instances import find_boxes
from orchestrator.aws.leftover import regional
from orchestrator.aws.role import ensure_kill_role
from orchestrator.aws.session import Session
from orchestrator.aws.stack import Leftover, leftovers
from orchestrator.aws.sweep import expired, look, sweep
from orchestrator.errors import ApiError

from .account import OTHER_RUN, RUN, FakeClock, Stack, tags_of

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
