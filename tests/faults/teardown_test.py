"""From whatever part of a run is left, teardown ends with nothing, and then has nothing to do."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import pytest

from orchestrator.aws import dead_letters, keys, schedules
from orchestrator.aws.instances import find_boxes, terminate
from orchestrator.aws.refusals import is_in_use, missing_is_fine
from orchestrator.aws.session import Session
from orchestrator.aws.stack import leftovers, teardown
from tests.fake_clock import FakeClock
from tests.faults.cloud import Call, ModelCloud, ModelRules
from tests.faults.cloud.building import build_run
from tests.faults.cloud.kit import (
    ACCOUNT,
    REGION,
    RUN,
    ZONES,
    TestAccount,
    model_session,
    open_account,
)

# Kind, and how its name ends. What is left of each subset is what teardown starts from.
PARTS = (
    ("instance", ""),
    ("schedule", ""),
    ("queue", ""),
    ("profile", ""),
    ("role", "-box"),
    ("role", "-kill"),
    ("key-pair", ""),
    ("vpc-endpoint", ""),
    ("internet-gateway", ""),
    ("security-group", ""),
    ("subnet", ""),
)
SLOW: dict[str, Any] = {
    "linger_s": 45.0,
    "profile_delay_s": 9.0,
    "role_delay_s": 9.0,
    "boot_s": 40.0,
    "shutdown_s": 30.0,
    "endpoint_linger_s": 15.0,
    "queue_linger_s": 20.0,
}


def built(account: TestAccount) -> None:
    """Two boxes, guarded and armed, of which one is a spot box."""
    run = build_run(account.session, account.tags(), ZONES)
    for box in ("l4", "l40s"):
        run.guard(box)
    run.armed("l4")
    run.armed("l40s", spot=True)


def slow_model() -> tuple[ModelCloud, TestAccount]:
    clock, rules = FakeClock(), ModelRules(**SLOW)
    cloud = ModelCloud(clock.now, rules, account=ACCOUNT, region=REGION)
    account = TestAccount("model", model_session(cloud, clock), rules, clock, cloud)
    built(account)
    return cloud, account


def subsets(first: tuple[bool, ...]) -> Iterator[list[tuple[str, str]]]:
    """All choices of parts to lose that begin so."""
    for rest in product((False, True), repeat=len(PARTS) - len(first)):
        chosen = zip(PARTS, (*first, *rest), strict=True)
        yield [part for part, lost in chosen if lost]


@pytest.mark.parametrize("first", list(product((False, True), repeat=3)))
def test_nothing_is_left_of_any_part_of_a_run(first: tuple[bool, ...]) -> None:
    for lost in subsets(first):
        cloud, account = slow_model()
        random.Random(str(lost)).shuffle(lost)
        for kind, name in lost:
            cloud.drop(RUN, kind, name)
        left = teardown(account.session, RUN, account.now())
        assert (left, cloud.tagged(RUN), cloud.billable(RUN)) == ([], [], []), lost
        changes: list[Call] = []
        cloud.after = partial(_note_change, changes)
        assert teardown(account.session, RUN, account.now()) == []
        assert changes == [], lost


def _note_change(seen: list[Call], call: Call) -> None:
    """Only what succeeds gets here: deleting what isn't there is refused, and changes nothing."""
    if not call.operation.startswith(("describe_", "get_", "list_", "head_")):
        seen.append(call)


def test_a_lost_vpc_takes_everything_inside_along() -> None:
    cloud, account = slow_model()
    cloud.drop(RUN, "instance")
    account.pass_time(600)
    for kind in ("vpc-endpoint", "internet-gateway", "security-group", "subnet", "route-table"):
        cloud.drop(RUN, kind)
    cloud.drop(RUN, "vpc")
    assert teardown(account.session, RUN, account.now()) == []
    assert cloud.tagged(RUN) == []


def _boxes(session: Session) -> None:
    terminate(session, [box.instance_id for box in find_boxes(session, RUN)])


def _endpoint(session: Session) -> None:
    ec2 = session.client("ec2")
    found = [each["VpcEndpointId"] for each in ec2.describe_vpc_endpoints()["VpcEndpoints"]]
    ec2.delete_vpc_endpoints(VpcEndpointIds=found)


def _gateway(session: Session) -> None:
    ec2 = session.client("ec2")
    for gateway in ec2.describe_internet_gateways()["InternetGateways"]:
        name = gateway["InternetGatewayId"]
        for link in gateway["Attachments"]:
            ec2.detach_internet_gateway(InternetGatewayId=name, VpcId=link["VpcId"])
        ec2.delete_internet_gateway(InternetGatewayId=name)


def _group(session: Session) -> None:
    ec2 = session.client("ec2")
    for group in ec2.describe_security_groups()["SecurityGroups"]:
        if group["GroupName"] != "default":
            ec2.delete_security_group(GroupId=group["GroupId"])


def _subnets(session: Session) -> None:
    ec2 = session.client("ec2")
    for subnet in ec2.describe_subnets(Filters=[{"Name": "tag-key", "Values": ["gpurun:run"]}])[
        "Subnets"
    ]:
        ec2.delete_subnet(SubnetId=subnet["SubnetId"])


def _profile(session: Session) -> None:
    iam, name = session.client("iam"), f"gpurun-{RUN}-box"
    iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=name)
    iam.delete_instance_profile(InstanceProfileName=name)


def _role(part: str) -> Callable[[Session], None]:
    def lose(session: Session) -> None:
        iam, name = session.client("iam"), f"gpurun-{RUN}-{part}"
        for policy in iam.list_role_policies(RoleName=name)["PolicyNames"]:
            iam.delete_role_policy(RoleName=name, PolicyName=policy)
        iam.delete_role(RoleName=name)

    return lose


# The same parts by calls that AWS allows: what is in use stays.
LOSSES: tuple[Callable[[Session], None], ...] = (
    _boxes,
    lambda session: schedules.delete_kills(session, RUN),
    lambda session: dead_letters.delete_queue(session, RUN),
    _profile,
    _role("box"),
    _role("kill"),
    lambda session: keys.delete_key_pair(session, RUN),
    _endpoint,
    _gateway,
    _group,
    _subnets,
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_nothing_is_left_of_a_part_of_a_run_on_strict_moto(seed: int) -> None:
    dice = random.Random(seed)
    with open_account("moto") as account:
        built(account)
        for lose in LOSSES:
            if dice.random() < 0.5:
                _lose(lose, account.session)
        account.turn(linger_s=45.0, shutdown_s=30.0, endpoint_linger_s=15.0)
        assert teardown(account.session, RUN, account.now()) == []
        assert leftovers(account.session, RUN) == []
        assert teardown(account.session, RUN, account.now()) == []


def _lose(lose: Callable[[Session], None], session: Session) -> None:
    try:
        with missing_is_fine():
            lose(session)
    except Exception as error:
        if not is_in_use(error):
            raise
