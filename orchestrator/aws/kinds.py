"""How EC2 lists each kind of thing that a run makes, and what of one bills by the hour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.aws import tags as tag
from orchestrator.aws.tags import as_map, parse_price

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal


@dataclass(frozen=True)
class Bills:
    """What of a thing bills by the hour, as its description tells; nothing by default."""

    instance_type: str = ""
    """Set while compute bills."""
    price_usd_per_hour: Decimal | None = None
    """Of the compute, from its tag."""
    disk_gb: int = 0
    addresses: int = 0


@dataclass(frozen=True)
class Kind:
    """How EC2 lists one kind of thing."""

    name: str
    operation: str
    rows: Callable[[Any], list[Any]]
    id_key: str
    state: Callable[[Any], str] = lambda _: ""
    gone: tuple[str, ...] = ()
    bills: Callable[[Any], Bills] = lambda _: Bills()


def _instance_bills(row: Any) -> Bills:
    """Compute and address from the launch until `shutting-down`; a stopped one has its disk."""
    if row["State"]["Name"] not in ("pending", "running"):
        return Bills()
    return Bills(
        instance_type=row["InstanceType"],
        price_usd_per_hour=parse_price(as_map(row.get("Tags", [])).get(tag.PRICE)),
        addresses=1 if row.get("PublicIpAddress") else 0,
    )


KINDS = (
    Kind(
        "instance",
        "describe_instances",
        lambda page: [row for group in page["Reservations"] for row in group["Instances"]],
        "InstanceId",
        state=lambda row: row["State"]["Name"],
        gone=("terminated",),
        bills=_instance_bills,
    ),
    Kind(
        "volume",
        "describe_volumes",
        lambda page: page["Volumes"],
        "VolumeId",
        state=lambda row: row["State"],
        gone=("deleting", "deleted"),
        bills=lambda row: Bills(disk_gb=row["Size"]),
    ),
    Kind(
        "network-interface",
        "describe_network_interfaces",
        lambda page: page["NetworkInterfaces"],
        "NetworkInterfaceId",
        state=lambda row: f"{row['Status']}, {attached_to(row)}",
    ),
    Kind(
        "vpc-endpoint",
        "describe_vpc_endpoints",
        lambda page: page["VpcEndpoints"],
        "VpcEndpointId",
        state=lambda row: str(row.get("State", "")).lower(),
        gone=("deleting", "deleted"),
    ),
    Kind(
        "security-group",
        "describe_security_groups",
        lambda page: page["SecurityGroups"],
        "GroupId",
    ),
    Kind(
        "internet-gateway",
        "describe_internet_gateways",
        lambda page: page["InternetGateways"],
        "InternetGatewayId",
    ),
    Kind("subnet", "describe_subnets", lambda page: page["Subnets"], "SubnetId"),
    Kind("route-table", "describe_route_tables", lambda page: page["RouteTables"], "RouteTableId"),
    Kind("vpc", "describe_vpcs", lambda page: page["Vpcs"], "VpcId"),
    Kind("key-pair", "describe_key_pairs", lambda page: page["KeyPairs"], "KeyPairId"),
)


def attached_to(interface: Any) -> str:
    """What an interface is for: an instance, a service's own thing, or nothing any more."""
    link = interface.get("Attachment") or {}
    if link.get("InstanceId"):
        return f"of instance {link['InstanceId']}"
    kind, owner = interface.get("InterfaceType", "interface"), link.get("InstanceOwnerId")
    return f"of a {kind} of {owner}" if owner or kind != "interface" else "of nothing"
