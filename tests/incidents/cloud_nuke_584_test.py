"""gruntwork-io/cloud-nuke#584, #395 and #252: DependencyViolation, where a clean-up stops.

There: things are deleted in the wrong order, or name each other (two security groups), or are held
by something slow (an endpoint, an interface). The cleaner gives up, and the network stays.
Here: the same rules of AWS in force. Two groups of a run that name each other, an endpoint and
interfaces that take minutes, and every one of the 64 partial states of a network: the teardown
ends with nothing, and a second one changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

from orchestrator.aws.refusals import is_in_use
from orchestrator.aws.stack import leftovers, teardown
from tests.faults.cloud import Call
from tests.faults.cloud.building import BuiltRun, build_run
from tests.faults.cloud.kit import RUN, ZONES, TestAccount, open_account

PARTS = ("instance", "vpc-endpoint", "internet-gateway", "security-group", "subnet", "profile")
SLOW = {"linger_s": 240.0, "endpoint_linger_s": 180.0, "shutdown_s": 60.0}
STATES = [lost for k in range(len(PARTS) + 1) for lost in combinations(PARTS, k)]


@pytest.fixture(params=["model", "moto"])
def account(request: pytest.FixtureRequest) -> Iterator[TestAccount]:
    with open_account(request.param) as one:
        yield one


def allow(account: TestAccount, group: str, other: str) -> None:
    rule = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": other}]}
    account.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[rule])


def second_group(account: TestAccount, run: BuiltRun) -> str:
    made: Any = account.ec2.create_security_group(
        GroupName="second",
        Description="also of the run",
        VpcId=run.net.vpc_id,
        TagSpecifications=run.tags.spec("security-group", role="network", name="second"),
    )
    return str(made["GroupId"])


def refused(account: TestAccount, operation: str, **what: str) -> bool:
    try:
        getattr(account.ec2, operation)(**what)
    except Exception as error:
        return is_in_use(error)
    return False


def test_groups_that_name_each_other_go(account: TestAccount) -> None:
    run = build_run(account.session, account.tags(), ZONES)
    other = second_group(account, run)
    allow(account, run.net.group_id, other)
    allow(account, other, run.net.group_id)
    for group in (other, run.net.group_id):
        assert refused(account, "delete_security_group", GroupId=group)
    assert teardown(account.session, RUN, account.now()) == []
    assert leftovers(account.session, RUN) == []


def test_what_is_slow_to_go_is_waited_for_in_the_right_order(account: TestAccount) -> None:
    run = build_run(account.session, account.tags(), ZONES)
    run.armed()
    for operation, what in (
        ("delete_vpc", {"VpcId": run.net.vpc_id}),
        ("delete_security_group", {"GroupId": run.net.group_id}),
        ("delete_subnet", {"SubnetId": next(iter(run.net.subnets.values()))}),
    ):
        assert refused(account, operation, **what), operation
    account.turn(**SLOW)
    assert teardown(account.session, RUN, account.now()) == []
    assert leftovers(account.session, RUN) == []


@pytest.mark.parametrize("lost", STATES, ids="+".join)
def test_from_every_partial_state_a_teardown_ends_with_nothing(lost: tuple[str, ...]) -> None:
    with open_account("model") as account:
        run = build_run(account.session, account.tags(), ZONES)
        run.armed()
        account.turn(**SLOW)
        assert account.cloud is not None
        for kind in lost:
            account.cloud.drop(RUN, kind)
        assert teardown(account.session, RUN, account.now()) == []
        assert account.cloud.tagged(RUN) == []
        changes: list[str] = []

        def note(call: Call) -> None:
            if not call.operation.startswith(("describe_", "get_", "list_", "head_")):
                changes.append(call.operation)

        account.cloud.after = note
        assert teardown(account.session, RUN, account.now()) == []
        assert changes == []
