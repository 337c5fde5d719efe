"""What holds a run's network and isn't the run's: named by id, never touched, not waited for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.aws import network
from orchestrator.aws.boxes import find_boxes
from orchestrator.aws.role import delete_roles
from orchestrator.aws.role_policies import BOX
from orchestrator.aws.session import Session
from orchestrator.aws.stack import Leftover, leftovers, teardown
from orchestrator.aws.tags import named
from orchestrator.errors import CredentialsError, TeardownError
from orchestrator.localcloud.strict import StrictRules
from tests.fake_clock import FakeClock

from .account import RUN, Recorder, Stack, refuse


def detail(left: list[Leftover], kind: str) -> str:
    (found,) = [item.detail for item in left if item.kind == kind]
    return found


def first_subnet(stack: Stack) -> str:
    return next(iter(stack.net.subnets.values()))


def put_interface(stack: Stack) -> tuple[str, Callable[[], None]]:
    ec2 = stack.session.client("ec2")
    made = ec2.create_network_interface(SubnetId=first_subnet(stack), Description="Ann's probe")
    name = made["NetworkInterface"]["NetworkInterfaceId"]

    def take() -> None:
        ec2.delete_network_interface(NetworkInterfaceId=name)

    return name, take


def put_instance(stack: Stack) -> tuple[str, Callable[[], None]]:
    ec2 = stack.session.client("ec2")
    made = ec2.run_instances(
        ImageId=stack.ami.id,
        InstanceType="g6.xlarge",
        MinCount=1,
        MaxCount=1,
        SubnetId=first_subnet(stack),
    )
    name = made["Instances"][0]["InstanceId"]

    def take() -> None:
        ec2.terminate_instances(InstanceIds=[name])

    return name, take


def put_nat(stack: Stack) -> tuple[str, Callable[[], None]]:
    ec2 = stack.session.client("ec2")
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    made = ec2.create_nat_gateway(SubnetId=first_subnet(stack), AllocationId=address)
    name = made["NatGateway"]["NatGatewayId"]

    def take() -> None:
        ec2.delete_nat_gateway(NatGatewayId=name)
        found = ec2.describe_network_interfaces(
            Filters=[{"Name": "subnet-id", "Values": [first_subnet(stack)]}]
        )
        for row in found["NetworkInterfaces"]:
            ec2.delete_network_interface(NetworkInterfaceId=row["NetworkInterfaceId"])
        ec2.release_address(AllocationId=address)

    return name, take


def put_group(stack: Stack) -> tuple[str, Callable[[], None]]:
    ec2 = stack.session.client("ec2")
    name = ec2.create_security_group(GroupName="ann", Description="x", VpcId=stack.net.vpc_id)[
        "GroupId"
    ]
    ec2.authorize_security_group_ingress(
        GroupId=name,
        IpPermissions=[
            {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": stack.net.group_id}]}
        ],
    )

    def take() -> None:
        ec2.delete_security_group(GroupId=name)

    return name, take


def put_subnet(stack: Stack) -> tuple[str, Callable[[], None]]:
    ec2 = stack.session.client("ec2")
    made = ec2.create_subnet(VpcId=stack.net.vpc_id, CidrBlock="10.71.240.0/24")
    name = made["Subnet"]["SubnetId"]

    def take() -> None:
        ec2.delete_subnet(SubnetId=name)

    return name, take


@pytest.mark.parametrize("put", [put_interface, put_instance, put_nat, put_group, put_subnet])
def test_what_a_person_put_into_the_network_is_named_and_not_deleted(
    stack: Stack, clock: FakeClock, put: Callable[[Stack], tuple[str, Callable[[], None]]]
) -> None:
    stack.arm(stack.launch("l4"))
    name, take = put(stack)
    left = teardown(stack.session, RUN, clock.now())
    assert name in detail(left, "vpc")
    assert {item.kind for item in left} <= {
        "vpc",
        "subnet",
        "route-table",
        "security-group",
        "internet-gateway",
    }
    take()
    assert teardown(stack.session, RUN, clock.now()) == []
    assert leftovers(stack.session) == []


def test_an_interface_is_named_with_what_it_is_for(stack: Stack, clock: FakeClock) -> None:
    name, _ = put_interface(stack)
    left = teardown(stack.session, RUN, clock.now())
    words = f"network-interface {name} (of nothing 'Ann's probe')"
    assert words in detail(left, "vpc")
    assert words in detail(left, "subnet")
    assert clock.waited_s <= 121  # looked at twice: an instance of ours may have shown up


def test_a_group_that_names_ours_is_named(stack: Stack, clock: FakeClock) -> None:
    name, _ = put_group(stack)
    left = teardown(stack.session, RUN, clock.now())
    words = f"held by security-group {name} 'ann' (a rule names it)"
    assert words in detail(left, "security-group")


def test_an_endpoint_that_takes_its_time_is_waited_for_and_asked_once(
    stack: Stack,
    rules: StrictRules,
    clock: FakeClock,
    record: Callable[[Any, str], Recorder],
) -> None:
    rules.endpoint_linger_s = 120
    asked = record("ec2", "DeleteVpcEndpoints")
    assert teardown(stack.session, RUN, clock.now()) == []
    assert len(asked.calls) == 1
    assert 120 <= clock.waited_s < 140


def test_an_endpoint_that_is_going_is_not_built_on(stack: Stack, rules: StrictRules) -> None:
    rules.endpoint_linger_s = 120
    ec2 = stack.session.client("ec2")
    (old,) = [each["VpcEndpointId"] for each in ec2.describe_vpc_endpoints()["VpcEndpoints"]]
    ec2.delete_vpc_endpoints(VpcEndpointIds=[old])
    network.ensure_network(stack.session, stack.tags, stack.net.subnets, None)
    states = {
        e["VpcEndpointId"]: str(e["State"]) for e in ec2.describe_vpc_endpoints()["VpcEndpoints"]
    }
    assert states.pop(old) == "deleting"
    assert list(states.values()) == ["available"]


def test_a_role_that_a_person_gave_a_policy_is_named_with_it(
    stack: Stack, session: Session, clock: FakeClock
) -> None:
    iam, name = session.client("iam"), named(RUN, BOX)
    statement = {"Effect": "Allow", "Action": "s3:ListAllMyBuckets", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    arn = iam.create_policy(PolicyName="anns", PolicyDocument=document)["Policy"]["Arn"]
    iam.attach_role_policy(RoleName=name, PolicyArn=arn)
    left = teardown(session, RUN, clock.now())
    assert [item.id for item in left] == [name]
    assert f"held by policy {arn} (attached)" in detail(left, "role")
    assert clock.waited_s <= 61
    iam.detach_role_policy(RoleName=name, PolicyArn=arn)
    delete_roles(session, RUN)
    assert leftovers(session, RUN) == []


def test_a_box_that_may_not_be_terminated_is_not_called_ended(
    stack: Stack, clock: FakeClock
) -> None:
    box = stack.launch("l4")
    stack.arm(box)
    with (
        refuse(stack.session, "TerminateInstances", "UnauthorizedOperation"),
        pytest.raises(TeardownError, match="TERMINATION UNCONFIRMED") as caught,
    ):
        teardown(stack.session, RUN, clock.now())
    assert caught.value.exit_code == 14
    assert f"l4 {box.instance_id} may still run and bill; the cloud's switch ends it at " in str(
        caught.value
    )
    assert f"{stack.tags.expires_at:%Y-%m-%d %H:%M:%S} UTC" in str(caught.value)
    assert f"gpurun down {RUN}" in caught.value.hint
    assert find_boxes(stack.session, RUN)[0].alive
    assert network.find_vpcs(stack.session, RUN)


def test_a_box_without_a_switch_says_so(stack: Stack, clock: FakeClock) -> None:
    stack.launch("l4")
    with (
        refuse(stack.session, "TerminateInstances", "ExpiredToken"),
        pytest.raises(TeardownError, match="has no switch for it: end it in the EC2 console"),
    ):
        teardown(stack.session, RUN, clock.now())


def test_who_may_see_nothing_is_told_to_renew_and_nothing_is_called_gone(
    stack: Stack, clock: FakeClock
) -> None:
    stack.launch("l4")
    with (
        refuse(stack.session, "DescribeInstances", "ExpiredToken"),
        pytest.raises(CredentialsError),
    ):
        teardown(stack.session, RUN, clock.now())
