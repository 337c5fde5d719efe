"""Teardown: from any half of a run, twice, beside another run, and honest about what stays."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from orchestrator.aws import keys, network, role, schedules
from orchestrator.aws.bucket import ensure_bucket, find_run_bucket
from orchestrator.aws.instances import BoxRecord, find_boxes, terminate
from orchestrator.aws.session import Session
from orchestrator.aws.stack import Leftover, leftovers, teardown
from orchestrator.errors import ApiError, CredentialsError, RunNotFound
from orchestrator.localcloud.strict import StrictRules
from tests.fake_clock import FakeClock

from .account import OTHER_RUN, RUN, Killed, Recorder, Stack, killed_after, refuse


def whole(stack: Stack) -> Stack:
    """A run with two boxes, armed."""
    stack.arm(stack.launch("l4"))
    stack.arm(stack.launch("l40s"))
    return stack


def kinds(items: list[Leftover]) -> set[str]:
    return {item.kind for item in items}


# Ways in which a part of a run may be gone, or never have been made.
LOSSES: dict[str, Callable[[Session], None]] = {
    "boxes": lambda s: terminate(s, [box.instance_id for box in find_boxes(s, RUN)]),
    "kills": lambda s: schedules.delete_kills(s, RUN),
    "key": lambda s: keys.delete_key_pair(s, RUN),
    "roles": lambda s: role.delete_roles(s, RUN),
    "endpoint": lambda s: _lose_endpoint(s),
    "default route": lambda s: _lose_route(s),
}


def _lose_endpoint(session: Session) -> None:
    ec2 = session.client("ec2")
    found = [e["VpcEndpointId"] for e in ec2.describe_vpc_endpoints()["VpcEndpoints"]]
    ec2.delete_vpc_endpoints(VpcEndpointIds=found)


def _lose_route(session: Session) -> None:
    (vpc_id,) = network.find_vpcs(session, RUN)
    ec2 = session.client("ec2")
    (table,) = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc_id]}])[
        "RouteTables"
    ]
    ec2.delete_route(RouteTableId=table["RouteTableId"], DestinationCidrBlock="0.0.0.0/0")


def test_a_whole_run_is_seen_by_kind(stack: Stack) -> None:
    items = leftovers(whole(stack).session, RUN)
    assert kinds(items) == {
        "instance",
        "volume",
        "network-interface",
        "vpc-endpoint",
        "security-group",
        "internet-gateway",
        "subnet",
        "route-table",
        "vpc",
        "key-pair",
        "schedule",
        "queue",
        "role",
        "instance-profile",
    }
    assert {item.run for item in items} == {RUN}
    assert {item.expires_at for item in items} == {stack.tags.expires_at}


def test_nothing_is_left_and_a_second_teardown_changes_nothing(
    stack: Stack, clock: FakeClock, record: Callable[[Any, str], Recorder]
) -> None:
    whole(stack)
    assert teardown(stack.session, RUN, clock.now()) == []
    assert leftovers(stack.session) == []
    deletions = [
        record(service, operation)
        for service in ("ec2", "iam", "scheduler")
        for operation in stack.session.client(service).meta.service_model.operation_names
        if service == "ec2" and operation.startswith(("Delete", "Terminate", "Detach", "Revoke"))
    ]
    assert teardown(stack.session, RUN, clock.now()) == []
    assert [call for recorder in deletions for call in recorder.calls] == []


def test_the_results_stay(stack: Stack, clock: FakeClock, session: Session) -> None:
    ensure_bucket(session).put(f"runs/{RUN}/run.json", b"{}")
    whole(stack)
    teardown(session, RUN, clock.now())
    assert find_run_bucket(session, RUN).get(f"runs/{RUN}/run.json") == b"{}"


def test_a_run_that_never_was_is_torn_down_at_once(session: Session, clock: FakeClock) -> None:
    assert teardown(session, RUN, clock.now()) == []
    assert clock.waited_s == 0


@pytest.mark.parametrize("lost", LOSSES)
def test_a_teardown_goes_on_where_another_one_died(
    stack: Stack, clock: FakeClock, lost: str
) -> None:
    LOSSES[lost](whole(stack).session)
    assert teardown(stack.session, RUN, clock.now()) == []
    assert leftovers(stack.session) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_teardown_ends_any_mixture_of_what_is_left(
    stack: Stack, clock: FakeClock, seed: int
) -> None:
    subsets = [c for n in (2, 3, 4, 5) for c in itertools.combinations(LOSSES, n)]
    whole(stack)
    for lost in random.Random(seed).choice(subsets):
        LOSSES[lost](stack.session)
    assert teardown(stack.session, RUN, clock.now()) == []
    assert leftovers(stack.session) == []


@pytest.mark.parametrize("dies_after", range(1, 19, 4))
def test_a_teardown_may_be_killed_at_any_call(
    stack: Stack, clock: FakeClock, dies_after: int
) -> None:
    whole(stack)
    with pytest.raises(Killed), killed_after(stack.session, dies_after):
        teardown(stack.session, RUN, clock.now())
    assert teardown(stack.session, RUN, clock.now()) == []
    assert leftovers(stack.session) == []


def test_one_run_is_torn_down_and_the_one_beside_it_is_not_touched(
    build: Callable[[str], Stack], clock: FakeClock
) -> None:
    ours, theirs = whole(build(RUN)), whole(build(OTHER_RUN))
    before = leftovers(theirs.session, OTHER_RUN)
    assert teardown(ours.session, RUN, clock.now()) == []
    assert leftovers(theirs.session, OTHER_RUN) == before
    assert all(box.alive for box in find_boxes(theirs.session, OTHER_RUN))


def test_boxes_and_interfaces_that_take_their_time_are_waited_for(
    stack: Stack, rules: StrictRules, clock: FakeClock
) -> None:
    whole(stack)
    rules.shutdown_s, rules.linger_s = 180, 120
    assert teardown(stack.session, RUN, clock.now()) == []
    assert 300 <= clock.waited_s < 400


def test_the_kill_stays_armed_while_a_box_does_not_end(
    stack: Stack, rules: StrictRules, clock: FakeClock
) -> None:
    whole(stack)
    rules.shutdown_s = 86_400
    left = teardown(stack.session, RUN, clock.now())
    assert {"instance", "schedule", "role", "instance-profile", "vpc"} <= kinds(left)
    assert len(schedules.find_kills(stack.session, RUN)) == 2
    assert clock.waited_s <= 610


def test_what_stays_is_named_and_the_rest_goes(stack: Stack, clock: FakeClock) -> None:
    whole(stack)
    with refuse(stack.session, "DeleteSubnet", "DependencyViolation"):
        left = teardown(stack.session, RUN, clock.now())
    assert kinds(left) == {"subnet", "route-table", "vpc"}
    assert {item.id for item in left} >= {stack.net.vpc_id, *stack.net.subnets.values()}
    assert clock.waited_s <= 610
    assert teardown(stack.session, RUN, clock.now()) == []


def test_what_is_overdue_says_for_how_long(
    stack: Stack, rules: StrictRules, clock: FakeClock
) -> None:
    whole(stack)
    rules.shutdown_s = 86_400
    later = stack.tags.expires_at + timedelta(minutes=12, seconds=30)
    left = teardown(stack.session, RUN, later)
    (detail, *_) = [item.detail for item in left if item.kind == "instance"]
    assert detail == "shutting-down, expired 12 min ago"


def test_an_instance_that_shows_up_late_is_ended_too(
    stack: Stack, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole(stack)
    hidden = itertools.chain([True], itertools.repeat(False))

    def late(session: Session, run_id: str) -> list[BoxRecord]:
        return [] if next(hidden) else find_boxes(session, run_id)

    monkeypatch.setattr("orchestrator.aws.stack.find_boxes", late)
    assert teardown(stack.session, RUN, clock.now()) == []


def test_credentials_that_expire_are_never_taken_for_an_empty_account(
    stack: Stack, clock: FakeClock
) -> None:
    whole(stack)
    with refuse(stack.session, "DescribeVpcs", "RequestExpired"), pytest.raises(CredentialsError):
        teardown(stack.session, RUN, clock.now())
    with (
        refuse(stack.session, "DescribeSubnets", "UnauthorizedOperation"),
        pytest.raises(ApiError),
    ):
        leftovers(stack.session, RUN)


def test_credentials_that_are_refused_half_way_are_told_at_the_end(
    stack: Stack, clock: FakeClock
) -> None:
    whole(stack)
    with refuse(stack.session, "DeleteSubnet", "RequestExpired"), pytest.raises(CredentialsError):
        teardown(stack.session, RUN, clock.now())
    assert teardown(stack.session, RUN, clock.now()) == []


@pytest.mark.parametrize("wild", ["*", "demo-*", "?emo-261129-190000-ab2c", "", "../x"])
def test_a_pattern_is_not_a_run_id(stack: Stack, clock: FakeClock, wild: str) -> None:
    whole(stack)
    with pytest.raises(RunNotFound):
        teardown(stack.session, wild, clock.now())
    assert all(box.alive for box in find_boxes(stack.session, RUN))


def test_a_thing_of_a_kind_that_no_run_makes_is_still_reported(stack: Stack) -> None:
    ec2 = stack.session.client("ec2")
    volume = ec2.create_volume(AvailabilityZone="us-east-1a", Size=1)["VolumeId"]
    copy = ec2.create_snapshot(
        VolumeId=volume, TagSpecifications=stack.tags.spec("snapshot", role="box")
    )["SnapshotId"]
    found = [item for item in leftovers(stack.session, RUN) if item.id == copy]
    assert [(item.kind, item.run) for item in found] == [("snapshot", RUN)]
