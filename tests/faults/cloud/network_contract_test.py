"""What EC2 says of networks: found by filter, seen by shape, deleted in no order but its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults.cloud.kit import KEY, RUN, TestAccount, refusal


def build(account: TestAccount) -> SimpleNamespace:
    """A VPC with a subnet, a way out and a group; the names say what is what."""
    ec2, spec = account.ec2, account.spec
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=spec("vpc"))["Vpc"]["VpcId"]
    zone = f"{account.session.region}a"
    subnet = ec2.create_subnet(
        VpcId=vpc,
        CidrBlock="10.0.0.0/24",
        AvailabilityZone=zone,
        TagSpecifications=spec("subnet"),
    )["Subnet"]["SubnetId"]
    gateway = ec2.create_internet_gateway(TagSpecifications=spec("internet-gateway"))
    gateway_id = gateway["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway_id, VpcId=vpc)
    return SimpleNamespace(id=vpc, subnet=subnet, gateway=gateway_id, group=group(account, vpc))


def group(account: TestAccount, vpc: str, name: str = "one") -> str:
    made = account.ec2.create_security_group(
        GroupName=name,
        Description="d",
        VpcId=vpc,
        TagSpecifications=account.spec("security-group"),
    )
    return str(made["GroupId"])


def of_vpc(vpc: SimpleNamespace, name: str = "vpc-id") -> list[Any]:
    return [{"Name": name, "Values": [vpc.id]}]


def main_table(account: TestAccount, vpc: SimpleNamespace) -> Any:
    filters = [*of_vpc(vpc), {"Name": "association.main", "Values": ["true"]}]
    (table,) = account.ec2.describe_route_tables(Filters=filters)["RouteTables"]
    return table


def endpoint(account: TestAccount, vpc: SimpleNamespace, **more: Any) -> str:
    made = account.ec2.create_vpc_endpoint(
        VpcId=vpc.id,
        ServiceName=f"com.amazonaws.{account.session.region}.s3",
        VpcEndpointType="Gateway",
        RouteTableIds=[main_table(account, vpc)["RouteTableId"]],
        TagSpecifications=account.spec("vpc-endpoint"),
        **more,
    )
    return str(made["VpcEndpoint"]["VpcEndpointId"])


def test_a_vpc_goes_last_and_takes_its_own_along(account: TestAccount) -> None:
    ec2, vpc = account.ec2, build(account)
    assert refusal(ec2.delete_vpc, VpcId=vpc.id) == "DependencyViolation"
    ec2.detach_internet_gateway(InternetGatewayId=vpc.gateway, VpcId=vpc.id)
    ec2.delete_internet_gateway(InternetGatewayId=vpc.gateway)
    assert refusal(ec2.delete_vpc, VpcId=vpc.id) == "DependencyViolation"
    ec2.delete_subnet(SubnetId=vpc.subnet)
    assert refusal(ec2.delete_vpc, VpcId=vpc.id) == "DependencyViolation"
    ec2.delete_security_group(GroupId=vpc.group)
    ec2.delete_vpc(VpcId=vpc.id)
    for describe, key in (
        (ec2.describe_vpcs, "Vpcs"),
        (ec2.describe_route_tables, "RouteTables"),
        (ec2.describe_security_groups, "SecurityGroups"),
    ):
        assert describe(Filters=of_vpc(vpc))[key] == []


def test_an_endpoint_keeps_its_vpc(account: TestAccount) -> None:
    ec2 = account.ec2
    made = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=account.spec("vpc"))
    vpc = SimpleNamespace(id=made["Vpc"]["VpcId"])
    name = endpoint(account, vpc)
    assert refusal(ec2.delete_vpc, VpcId=vpc.id) == "DependencyViolation"
    ec2.delete_vpc_endpoints(VpcEndpointIds=[name])
    if account.name != "aws":
        assert ec2.describe_vpc_endpoints(Filters=of_vpc(vpc))["VpcEndpoints"] == []
        ec2.delete_vpc(VpcId=vpc.id)


def test_a_deleted_endpoint_is_deleting_for_a_while(account: TestAccount) -> None:
    account.turn(endpoint_linger_s=30)
    vpc = build(account)
    name = endpoint(account, vpc)
    for _ in range(2):
        account.ec2.delete_vpc_endpoints(VpcEndpointIds=[name])
    (seen,) = account.ec2.describe_vpc_endpoints(Filters=of_vpc(vpc))["VpcEndpoints"]
    assert seen["State"] == "deleting"
    account.pass_time(30)
    assert account.ec2.describe_vpc_endpoints(Filters=of_vpc(vpc))["VpcEndpoints"] == []


def test_an_endpoint_that_is_not_there_is_listed_as_not_deleted(account: TestAccount) -> None:
    answer = account.ec2.delete_vpc_endpoints(VpcEndpointIds=["vpce-0123456789abcdef0"])
    (failed,) = answer["Unsuccessful"]
    assert failed["ResourceId"] == "vpce-0123456789abcdef0"
    assert failed["Error"]["Code"].endswith(".NotFound")


def test_main_table_and_default_group_are_not_ours_to_delete(account: TestAccount) -> None:
    ec2, vpc = account.ec2, build(account)
    table = main_table(account, vpc)["RouteTableId"]
    groups = ec2.describe_security_groups(Filters=of_vpc(vpc))["SecurityGroups"]
    (default,) = [each["GroupId"] for each in groups if each["GroupName"] == "default"]
    assert refusal(ec2.delete_route_table, RouteTableId=table) == "DependencyViolation"
    assert refusal(ec2.delete_security_group, GroupId=default) == "CannotDelete"


def test_a_table_goes_when_no_subnet_uses_it(account: TestAccount) -> None:
    ec2, vpc = account.ec2, build(account)
    made = ec2.create_route_table(VpcId=vpc.id, TagSpecifications=account.spec("route-table"))
    table = made["RouteTable"]["RouteTableId"]
    link = ec2.associate_route_table(RouteTableId=table, SubnetId=vpc.subnet)["AssociationId"]
    assert refusal(ec2.delete_route_table, RouteTableId=table) == "DependencyViolation"
    ec2.disassociate_route_table(AssociationId=link)
    ec2.delete_route_table(RouteTableId=table)
    assert len(ec2.describe_route_tables(Filters=of_vpc(vpc))["RouteTables"]) == 1


def test_groups_that_name_each_other_wait_for_the_rule_to_go(account: TestAccount) -> None:
    ec2, vpc = account.ec2, build(account)
    other = group(account, vpc.id, "two")
    ports = {"IpProtocol": "tcp", "FromPort": 1, "ToPort": 2}
    rule = [{**ports, "UserIdGroupPairs": [{"GroupId": vpc.group}]}]
    ec2.authorize_security_group_ingress(GroupId=other, IpPermissions=rule)
    assert refusal(ec2.delete_security_group, GroupId=vpc.group) == "DependencyViolation"
    (seen,) = ec2.describe_security_groups(GroupIds=[other])["SecurityGroups"]
    ec2.revoke_security_group_ingress(GroupId=other, IpPermissions=seen["IpPermissions"])
    ec2.delete_security_group(GroupId=vpc.group)


def test_a_group_shows_what_was_let_in_and_nothing_twice(account: TestAccount) -> None:
    ec2, vpc = account.ec2, build(account)
    door = {
        "IpProtocol": "tcp",
        "FromPort": 22,
        "ToPort": 22,
        "IpRanges": [{"CidrIp": "192.0.2.7/32", "Description": "SSH from the caller"}],
    }
    ec2.authorize_security_group_ingress(GroupId=vpc.group, IpPermissions=[door])
    again = {"GroupId": vpc.group, "IpPermissions": [door]}
    assert refusal(ec2.authorize_security_group_ingress, **again) == "InvalidPermission.Duplicate"
    (seen,) = ec2.describe_security_groups(GroupIds=[vpc.group])["SecurityGroups"]
    (rule,) = seen["IpPermissions"]
    assert {key: rule[key] for key in door} == door
    assert rule["UserIdGroupPairs"] == []
    (out,) = seen["IpPermissionsEgress"]
    assert (out["IpProtocol"], out["IpRanges"][0]["CidrIp"]) == ("-1", "0.0.0.0/0")
    ec2.revoke_security_group_ingress(GroupId=vpc.group, IpPermissions=[rule])
    gone = {"GroupId": vpc.group, "IpPermissions": [door]}
    assert refusal(ec2.revoke_security_group_ingress, **gone) == "InvalidPermission.NotFound"
    assert (
        ec2.describe_security_groups(GroupIds=[vpc.group])["SecurityGroups"][0]["IpPermissions"]
        == []
    )


def test_a_gateway_is_in_one_vpc_at_most(account: TestAccount) -> None:
    ec2, vpc = account.ec2, build(account)
    here = {"InternetGatewayId": vpc.gateway, "VpcId": vpc.id}
    assert refusal(ec2.attach_internet_gateway, **here) == "Resource.AlreadyAssociated"
    of_it = {"InternetGatewayId": vpc.gateway}
    assert refusal(ec2.delete_internet_gateway, **of_it) == "DependencyViolation"
    (seen,) = ec2.describe_internet_gateways(Filters=of_vpc(vpc, "attachment.vpc-id"))[
        "InternetGateways"
    ]
    assert seen["InternetGatewayId"] == vpc.gateway
    assert [link["VpcId"] for link in seen["Attachments"]] == [vpc.id]
    ec2.detach_internet_gateway(**here)
    assert refusal(ec2.detach_internet_gateway, **here) == "Gateway.NotAttached"
    (loose,) = ec2.describe_internet_gateways(InternetGatewayIds=[vpc.gateway])["InternetGateways"]
    assert loose["Attachments"] == []


def test_a_route_is_made_once_and_may_then_lead_elsewhere(account: TestAccount) -> None:
    ec2, vpc = account.ec2, build(account)
    table = main_table(account, vpc)["RouteTableId"]
    out = {"RouteTableId": table, "DestinationCidrBlock": "0.0.0.0/0"}
    ec2.create_route(**out, GatewayId=vpc.gateway)
    routes = main_table(account, vpc)["Routes"]
    (default,) = [r for r in routes if r.get("DestinationCidrBlock") == "0.0.0.0/0"]
    assert default["GatewayId"] == vpc.gateway
    ec2.replace_route(**out, GatewayId=vpc.gateway)
    again = {**out, "GatewayId": vpc.gateway}
    assert refusal(ec2.create_route, **again) == "RouteAlreadyExists"
    ec2.delete_route(**out)
    assert refusal(ec2.delete_route, **out) == "InvalidRoute.NotFound"


def test_subnets_of_a_vpc_do_not_overlap(account: TestAccount) -> None:
    vpc = build(account)
    twice = {"VpcId": vpc.id, "CidrBlock": "10.0.0.0/25"}
    assert refusal(account.ec2.create_subnet, **twice) == "InvalidSubnet.Conflict"
    outside = {"VpcId": vpc.id, "CidrBlock": "10.9.0.0/24"}
    assert refusal(account.ec2.create_subnet, **outside) == "InvalidSubnet.Range"


def test_a_loose_interface_holds_its_subnet_and_its_group(account: TestAccount) -> None:
    ec2, vpc = account.ec2, build(account)
    made = ec2.create_network_interface(
        SubnetId=vpc.subnet,
        Groups=[vpc.group],
        Description="somebody's",
        TagSpecifications=account.spec("network-interface"),
    )["NetworkInterface"]
    name = made["NetworkInterfaceId"]
    assert refusal(ec2.delete_subnet, SubnetId=vpc.subnet) == "DependencyViolation"
    assert refusal(ec2.delete_security_group, GroupId=vpc.group) == "DependencyViolation"
    (seen,) = ec2.describe_network_interfaces(Filters=of_vpc(vpc))["NetworkInterfaces"]
    assert (seen["Status"], seen["Description"]) == ("available", "somebody's")
    ec2.delete_network_interface(NetworkInterfaceId=name)
    ec2.delete_subnet(SubnetId=vpc.subnet)
    ec2.delete_security_group(GroupId=vpc.group)


def test_dns_names_are_switched_on_per_vpc(account: TestAccount) -> None:
    vpc = build(account)
    account.ec2.modify_vpc_attribute(VpcId=vpc.id, EnableDnsHostnames={"Value": True})
    seen = account.ec2.describe_vpc_attribute(VpcId=vpc.id, Attribute="enableDnsHostnames")
    assert seen["EnableDnsHostnames"]["Value"] is True


@pytest.mark.parametrize(
    "operation,key,name,code",
    [
        ("delete_vpc", "VpcId", "vpc-", "InvalidVpcID.NotFound"),
        ("delete_subnet", "SubnetId", "subnet-", "InvalidSubnetID.NotFound"),
        ("delete_security_group", "GroupId", "sg-", "InvalidGroup.NotFound"),
        ("delete_route_table", "RouteTableId", "rtb-", "InvalidRouteTableID.NotFound"),
        (
            "delete_internet_gateway",
            "InternetGatewayId",
            "igw-",
            "InvalidInternetGatewayID.NotFound",
        ),
        (
            "delete_network_interface",
            "NetworkInterfaceId",
            "eni-",
            "InvalidNetworkInterfaceID.NotFound",
        ),
        ("delete_volume", "VolumeId", "vol-", "InvalidVolume.NotFound"),
    ],
)
def test_what_is_not_there_has_a_code_of_its_own(
    account: TestAccount, operation: str, key: str, name: str, code: str
) -> None:
    act = getattr(account.ec2, operation)
    assert refusal(act, **{key: f"{name}0123456789abcdef0"}) == code


def test_tags_are_found_by_each_filter_that_we_use(account: TestAccount) -> None:
    ec2, vpc = account.ec2, build(account)
    for filters in (
        [{"Name": "tag:gpurun:run", "Values": [RUN]}],
        [{"Name": "tag:gpurun:run", "Values": ["nobody", RUN[:-4] + "*"]}],
        [{"Name": "tag-key", "Values": ["gpurun:run"]}],
        [{"Name": "tag:gpurun:run", "Values": [RUN]}, *of_vpc(vpc)],
    ):
        found = ec2.describe_vpcs(Filters=filters)["Vpcs"]
        assert [each["VpcId"] for each in found] == [vpc.id]
        (subnet,) = ec2.describe_subnets(Filters=filters)["Subnets"]
        assert subnet["SubnetId"] == vpc.subnet
    other = [{"Name": "tag:gpurun:run", "Values": ["nobody"]}]
    assert ec2.describe_vpcs(Filters=other)["Vpcs"] == []


def test_the_list_of_tags_names_what_lives(account: TestAccount) -> None:
    ec2, vpc = account.ec2, build(account)
    key = {"Name": "key", "Values": ["gpurun:run"]}
    value = {"Name": "value", "Values": [RUN]}
    of_type = {"Name": "resource-type", "Values": ["subnet"]}
    found = ec2.describe_tags(Filters=[key, value])["Tags"]
    assert {row["ResourceId"] for row in found} == {vpc.id, vpc.subnet, vpc.gateway, vpc.group}
    (subnet,) = ec2.describe_tags(Filters=[key, of_type])["Tags"]
    assert subnet == {
        "Key": "gpurun:run",
        "Value": RUN,
        "ResourceId": vpc.subnet,
        "ResourceType": "subnet",
    }
    ec2.create_tags(Resources=[vpc.subnet], Tags=[{"Key": "gpurun:run", "Value": "other"}])
    assert ec2.describe_tags(Filters=[value, of_type])["Tags"] == []
    ec2.delete_subnet(SubnetId=vpc.subnet)
    assert ec2.describe_tags(Filters=[key, of_type])["Tags"] == []


def test_a_key_pair_has_one_name_and_may_be_deleted_twice(account: TestAccount) -> None:
    ec2, name = account.ec2, f"gpurun-{RUN}"
    asked = {
        "KeyName": name,
        "PublicKeyMaterial": KEY.encode(),
        "TagSpecifications": account.spec("key-pair"),
    }
    ec2.import_key_pair(**asked)
    assert refusal(ec2.import_key_pair, **asked) == "InvalidKeyPair.Duplicate"
    mine = [{"Name": "tag:gpurun:run", "Values": [RUN]}]
    (seen,) = ec2.describe_key_pairs(Filters=mine, IncludePublicKey=True)["KeyPairs"]
    assert seen["PublicKey"].split()[:2] == KEY.split()[:2]
    assert "PublicKey" not in ec2.describe_key_pairs(Filters=mine)["KeyPairs"][0]
    assert seen["KeyPairId"].startswith("key-")
    for _ in range(2):
        ec2.delete_key_pair(KeyName=name)
    assert ec2.describe_key_pairs(Filters=mine)["KeyPairs"] == []
