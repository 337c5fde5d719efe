"""A run's VPC: made once, closed to all but one address, and gone again in EC2's order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.aws.gateways import main_table
from orchestrator.aws.network import delete_network, ensure_network, find_vpcs
from orchestrator.aws.session import Session
from orchestrator.aws.tags import RunTags, as_map, of_run
from orchestrator.aws.zones import offered_zones
from orchestrator.errors import ApiError, CapacityError
from orchestrator.localcloud.strict import StrictRules
from tests.fake_clock import FakeClock

from .account import RUN, ZONES, Killed, Recorder, Stack, answer, killed_after, refuse

CALLER = "192.0.2.7/32"


def ingress(session: Session, group_id: str) -> list[tuple[Any, Any, str]]:
    (group,) = session.client("ec2").describe_security_groups(GroupIds=[group_id])[
        "SecurityGroups"
    ]
    return [
        (rule.get("FromPort"), rule.get("ToPort"), entry["CidrIp"])
        for rule in group["IpPermissions"]
        for entry in rule["IpRanges"]
    ]


def default_route(session: Session, vpc_id: str) -> str:
    table = main_table(session, vpc_id)
    (out,) = [r for r in table["Routes"] if r.get("DestinationCidrBlock") == "0.0.0.0/0"]
    return out["GatewayId"]


def test_a_second_call_makes_nothing_new(session: Session, tags: RunTags) -> None:
    first = ensure_network(session, tags, ZONES, CALLER)
    assert ensure_network(session, tags, ZONES, CALLER) == first
    ec2 = session.client("ec2")
    assert len(ec2.describe_internet_gateways()["InternetGateways"]) == 1
    assert len(ec2.describe_vpc_endpoints()["VpcEndpoints"]) == 1


@pytest.mark.parametrize("dies_after", range(1, 11))
def test_building_goes_on_where_it_was_killed(
    session: Session, tags: RunTags, dies_after: int
) -> None:
    with pytest.raises(Killed), killed_after(session, dies_after):
        ensure_network(session, tags, ZONES, CALLER)
    net = ensure_network(session, tags, ZONES, CALLER)
    ec2 = session.client("ec2")
    assert set(net.subnets) == set(ZONES)
    assert ingress(session, net.group_id) == [(22, 22, CALLER)]
    assert len(ec2.describe_vpcs(Filters=of_run(RUN))["Vpcs"]) == 1
    assert len(ec2.describe_subnets(Filters=of_run(RUN))["Subnets"]) == 3
    assert len(ec2.describe_internet_gateways()["InternetGateways"]) == 1
    assert len(ec2.describe_vpc_endpoints()["VpcEndpoints"]) == 1


def test_a_twin_that_shows_up_late_does_not_move_the_run(session: Session, tags: RunTags) -> None:
    first = ensure_network(session, tags, ZONES, CALLER)
    while find_vpcs(session, RUN)[0] == first.vpc_id:
        session.client("ec2").create_vpc(
            CidrBlock="10.71.0.0/16", TagSpecifications=tags.spec("vpc", role="vpc")
        )
    assert ensure_network(session, tags, ZONES, CALLER) == first


def test_a_main_route_table_that_ec2_does_not_know_yet_is_waited_for(
    session: Session, tags: RunTags, clock: FakeClock
) -> None:
    with (
        refuse(session, "CreateTags", "InvalidRouteTableID.NotFound"),
        pytest.raises(ApiError, match=r"InvalidRouteTableID\.NotFound"),
    ):
        ensure_network(session, tags, ZONES, CALLER)
    assert 30 <= clock.waited_s <= 120


def test_a_route_to_a_gateway_of_before_is_replaced(session: Session, tags: RunTags) -> None:
    net = ensure_network(session, tags, ZONES, CALLER)
    ec2 = session.client("ec2")
    (old,) = ec2.describe_internet_gateways()["InternetGateways"]
    ec2.detach_internet_gateway(InternetGatewayId=old["InternetGatewayId"], VpcId=net.vpc_id)
    ec2.delete_internet_gateway(InternetGatewayId=old["InternetGatewayId"])
    ensure_network(session, tags, ZONES, CALLER)
    (new,) = ec2.describe_internet_gateways()["InternetGateways"]
    assert default_route(session, net.vpc_id) == new["InternetGatewayId"]


def test_a_zone_more_gets_a_subnet_more(session: Session, tags: RunTags) -> None:
    first = ensure_network(session, tags, ZONES[:1], CALLER)
    second = ensure_network(session, tags, ZONES, CALLER)
    assert second.subnets.items() >= first.subnets.items()
    assert set(second.subnets) == set(ZONES)


def test_zones_that_the_account_does_not_have_are_left_out(
    session: Session, tags: RunTags
) -> None:
    assert set(ensure_network(session, tags, ["us-east-1a", "us-east-1x"], None).subnets) == {
        "us-east-1a"
    }
    with pytest.raises(CapacityError, match="us-east-1x"):
        ensure_network(session, tags, ["us-east-1x"], None)


def test_everything_is_tagged_in_the_call_that_makes_it(
    session: Session, tags: RunTags, record: Callable[[Any, str], Recorder]
) -> None:
    operations = (
        "CreateVpc",
        "CreateSubnet",
        "CreateInternetGateway",
        "CreateVpcEndpoint",
        "CreateSecurityGroup",
    )
    recorders = {name: record("ec2", name) for name in operations}
    ensure_network(session, tags, ZONES, CALLER)
    for name, recorder in recorders.items():
        assert recorder.calls, name
        for call in recorder.calls:
            found = as_map(call["TagSpecifications"][0]["Tags"])
            assert found["gpurun:run"] == RUN, name
            assert found["gpurun:owner"] == "ann@desk", name
            assert found["gpurun:expires-at"] == "2026-11-29T22:00:00Z", name
            assert {"gpurun:role", "gpurun:bucket", "Name"} <= found.keys(), name


def test_boxes_reach_the_internet_and_s3(session: Session, tags: RunTags) -> None:
    net = ensure_network(session, tags, ZONES, None)
    ec2 = session.client("ec2")
    (table,) = ec2.describe_route_tables(
        Filters=[
            {"Name": "vpc-id", "Values": [net.vpc_id]},
            {"Name": "association.main", "Values": ["true"]},
        ]
    )["RouteTables"]
    assert default_route(session, net.vpc_id).startswith("igw-")
    (endpoint,) = ec2.describe_vpc_endpoints()["VpcEndpoints"]
    assert endpoint["VpcEndpointType"] == "Gateway"
    assert endpoint["ServiceName"] == "com.amazonaws.us-east-1.s3"
    assert endpoint["RouteTableIds"] == [table["RouteTableId"]]
    answer = ec2.describe_vpc_attribute(VpcId=net.vpc_id, Attribute="enableDnsHostnames")
    assert answer["EnableDnsHostnames"]["Value"]


def test_ssh_is_open_to_the_caller_alone(session: Session, tags: RunTags) -> None:
    net = ensure_network(session, tags, ZONES, CALLER)
    assert ingress(session, net.group_id) == [(22, 22, CALLER)]


def test_without_a_caller_nothing_is_open(session: Session, tags: RunTags) -> None:
    net = ensure_network(session, tags, ZONES, None)
    assert ingress(session, net.group_id) == []


def test_a_caller_who_moved_replaces_the_door(session: Session, tags: RunTags) -> None:
    net = ensure_network(session, tags, ZONES, CALLER)
    ensure_network(session, tags, ZONES, "198.51.100.9/32")
    assert ingress(session, net.group_id) == [(22, 22, "198.51.100.9/32")]


def test_a_door_that_somebody_opened_is_closed_again(session: Session, tags: RunTags) -> None:
    net = ensure_network(session, tags, ZONES, CALLER)
    session.client("ec2").authorize_security_group_ingress(
        GroupId=net.group_id, IpProtocol="tcp", FromPort=0, ToPort=65535, CidrIp="0.0.0.0/0"
    )
    ensure_network(session, tags, ZONES, CALLER)
    assert ingress(session, net.group_id) == [(22, 22, CALLER)]


@pytest.mark.parametrize("wide", ["0.0.0.0/0", "192.0.2.0/24", "::1/128", "here", "2001:db8::/32"])
def test_no_more_than_one_address_may_come_in(session: Session, tags: RunTags, wide: str) -> None:
    with pytest.raises(ApiError, match="one IPv4 address"):
        ensure_network(session, tags, ZONES, wide)
    assert session.client("ec2").describe_vpcs(Filters=of_run(RUN))["Vpcs"] == []


def test_the_default_group_is_not_touched(session: Session, tags: RunTags) -> None:
    net = ensure_network(session, tags, ZONES, CALLER)
    (group,) = session.client("ec2").describe_security_groups(
        Filters=[
            {"Name": "vpc-id", "Values": [net.vpc_id]},
            {"Name": "group-name", "Values": ["default"]},
        ]
    )["SecurityGroups"]
    assert "gpurun:run" not in as_map(group.get("Tags", []))
    assert ingress(session, group["GroupId"]) == []


def test_deleting_waits_for_interfaces_that_outlive_their_instance(
    stack: Stack, rules: StrictRules, clock: FakeClock
) -> None:
    rules.linger_s = 90
    box = stack.launch()
    stack.session.client("ec2").terminate_instances(InstanceIds=[box.instance_id])
    delete_network(stack.session, RUN)
    assert 90 <= clock.waited_s < 150
    assert stack.session.client("ec2").describe_vpcs(VpcIds=[]) is not None
    with pytest.raises(Exception, match=r"InvalidVpcID\.NotFound"):
        stack.session.client("ec2").describe_vpcs(VpcIds=[stack.net.vpc_id])


def test_deleting_gives_up_in_bounded_time_and_says_what_holds(
    stack: Stack, clock: FakeClock
) -> None:
    stack.launch()
    with pytest.raises(ApiError, match="still in use"):
        delete_network(stack.session, RUN)
    assert clock.waited_s <= 660


def test_an_endpoint_that_ec2_keeps_is_not_taken_for_deleted(
    session: Session, tags: RunTags
) -> None:
    ensure_network(session, tags, ZONES, CALLER)
    kept = {"Unsuccessful": [{"ResourceId": "vpce-1", "Error": {"Code": "X", "Message": "held"}}]}
    with (
        answer(session, "DeleteVpcEndpoints", kept),
        pytest.raises(ApiError, match="vpce-1: held"),
    ):
        delete_network(session, RUN)
    delete_network(session, RUN)


def test_groups_that_name_each_other_are_deleted(session: Session, tags: RunTags) -> None:
    net = ensure_network(session, tags, ZONES, CALLER)
    ec2 = session.client("ec2")
    other = ec2.create_security_group(
        GroupName="x",
        Description="x",
        VpcId=net.vpc_id,
        TagSpecifications=tags.spec("security-group", role="sg"),
    )["GroupId"]
    for one, two in ((net.group_id, other), (other, net.group_id)):
        ec2.authorize_security_group_ingress(
            GroupId=one,
            IpPermissions=[{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": two}]}],
        )
    delete_network(session, RUN)
    assert ec2.describe_vpcs(Filters=[{"Name": "vpc-id", "Values": [net.vpc_id]}])["Vpcs"] == []


def test_a_twin_made_by_a_lost_reply_is_deleted_too(session: Session, tags: RunTags) -> None:
    ensure_network(session, tags, ZONES, CALLER)
    ec2 = session.client("ec2")
    ec2.create_vpc(CidrBlock="10.71.0.0/16", TagSpecifications=tags.spec("vpc", role="vpc"))
    ec2.create_internet_gateway(TagSpecifications=tags.spec("internet-gateway", role="igw"))
    delete_network(session, RUN)
    assert ec2.describe_internet_gateways()["InternetGateways"] == []
    assert [vpc for vpc in ec2.describe_vpcs()["Vpcs"] if not vpc["IsDefault"]] == []


def test_offered_zones_are_those_of_the_region_that_have_the_type(session: Session) -> None:
    zones = offered_zones(session, ["g6e.4xlarge", "g6.4xlarge"])
    assert zones["g6e.4xlarge"] == ("us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d")
    assert "us-east-1f" in zones["g6.4xlarge"]
