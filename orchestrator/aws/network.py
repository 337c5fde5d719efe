"""A run's own VPC: a subnet in each zone, one way out, and a door for one address at most.

Most of EC2's create calls know no idempotency token, so each thing is looked up by its tags
before it is made. A reply that got lost leaves a tagged twin, which the teardown finds as well.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.aws import gateways, groups
from orchestrator.aws.blockers import interface_words, is_of
from orchestrator.aws.refusals import boundary, is_missing
from orchestrator.aws.removal import all_of, remove
from orchestrator.aws.tags import RunTags, named, of_run, where
from orchestrator.aws.waits import DEPENDENCY_S, PROPAGATION_S
from orchestrator.aws.zones import open_zones
from orchestrator.errors import ApiError, CapacityError

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, NetworkInterfaceTypeDef, SubnetTypeDef

    from orchestrator.aws.session import Session

# A run's VPC is connected to nothing but the internet, so all runs may use the same addresses.
_VPC_CIDR = "10.71.0.0/16"
_SUBNET_BITS = 20


@dataclass(frozen=True)
class Network:
    """Where the boxes of a run go."""

    vpc_id: str
    subnets: Mapping[str, str]
    """Subnet ids by zone."""
    group_id: str


@boundary()
def ensure_network(
    session: Session,
    tags: RunTags,
    zones: Iterable[str],
    ssh_cidr: str | None,
    *,
    before: Callable[[], None] = lambda: None,
) -> Network:
    """Create what is missing of the run's network; a second call changes nothing.

    Zones that the account can't use are left out; SSH is open to `ssh_cidr` (a /32) at most.
    `before` is called before each kind of thing.

    Raises:
        CapacityError: the account can use none of the zones.
        ApiError: `ssh_cidr` isn't one machine's address, or AWS refuses.
    """
    door = groups.door(ssh_cidr)
    usable = sorted(set(zones) & open_zones(session))
    if not usable:
        raise CapacityError(
            f"{session.region} opens none of the zones {', '.join(sorted(zones))} to this account",
            hint="Choose another region in the runbook.",
        )
    before()
    vpc_id = _ensure_vpc(session, tags)
    before()
    gateways.ensure_internet(session, tags, vpc_id)
    before()
    gateways.ensure_s3_endpoint(session, tags, vpc_id)
    before()
    subnets = _ensure_subnets(session, tags, vpc_id, usable)
    before()
    group_id = groups.ensure_group(session, tags, vpc_id, door)
    return Network(vpc_id=vpc_id, subnets=subnets, group_id=group_id)


def find_vpcs(session: Session, run_id: str) -> list[str]:
    """Ids of the run's VPCs: one, or more after a reply that got lost."""
    found = session.client("ec2").describe_vpcs(Filters=of_run(run_id))["Vpcs"]
    return sorted(vpc["VpcId"] for vpc in found)


@boundary()
def delete_network(session: Session, run_id: str) -> None:
    """Delete the run's VPCs and what it has in them, once its instances are gone.

    Absent is done. What somebody else put there is left, and so is the VPC then. Steps go on
    after one that fails; the first failure is raised at the end.

    Raises:
        ApiError: something still holds a part of the network after ten minutes.
    """
    vpcs = find_vpcs(session, run_id)
    all_of(
        [
            *(partial(all_of, _steps(session, vpc_id, run_id)) for vpc_id in vpcs),
            lambda: gateways.delete_loose_gateways(session, run_id),
        ]
    )


def _ensure_vpc(session: Session, tags: RunTags) -> str:
    ec2 = session.client("ec2")
    found = find_vpcs(session, tags.run_id)
    if found:
        vpc_id = _in_use_first(session, tags.run_id, found)
    else:
        made = ec2.create_vpc(CidrBlock=_VPC_CIDR, TagSpecifications=tags.spec("vpc", role="vpc"))
        vpc_id = made["Vpc"]["VpcId"]
    session.patience.retry(
        lambda: ec2.modify_vpc_attribute(VpcId=vpc_id, EnableDnsHostnames={"Value": True}),
        when=is_missing,
        timeout_s=PROPAGATION_S,
    )
    return vpc_id


def _in_use_first(session: Session, run_id: str, vpcs: list[str]) -> str:
    """A twin left by a lost reply may show up when the first one is already built."""
    if len(vpcs) == 1:
        return vpcs[0]
    subnets = session.client("ec2").describe_subnets(Filters=of_run(run_id))["Subnets"]
    built = {subnet["VpcId"] for subnet in subnets}
    return min(vpcs, key=lambda vpc_id: (vpc_id not in built, vpc_id))


def _ensure_subnets(
    session: Session, tags: RunTags, vpc_id: str, zones: list[str]
) -> dict[str, str]:
    """One subnet per zone; the lowest id where a lost reply left two."""
    present = sorted(_subnets(session, vpc_id), key=lambda subnet: subnet["SubnetId"])
    by_zone = {subnet["AvailabilityZone"]: subnet["SubnetId"] for subnet in reversed(present)}
    taken = {subnet["CidrBlock"] for subnet in present}
    blocks = ipaddress.ip_network(_VPC_CIDR).subnets(new_prefix=_SUBNET_BITS)
    free = (str(block) for block in blocks if str(block) not in taken)
    for zone in zones:
        if zone not in by_zone:
            by_zone[zone] = _create_subnet(session, tags, vpc_id, zone, next(free))
    return {zone: by_zone[zone] for zone in zones}


def _create_subnet(session: Session, tags: RunTags, vpc_id: str, zone: str, cidr: str) -> str:
    name = named(tags.run_id, zone)
    made = session.patience.retry(
        lambda: session.client("ec2").create_subnet(
            VpcId=vpc_id,
            AvailabilityZone=zone,
            CidrBlock=cidr,
            TagSpecifications=tags.spec("subnet", role="subnet", name=name),
        ),
        when=is_missing,
        timeout_s=PROPAGATION_S,
    )
    return made["Subnet"]["SubnetId"]


def _subnets(session: Session, vpc_id: str, *more: FilterTypeDef) -> list[SubnetTypeDef]:
    filters = [where("vpc-id", vpc_id), *more]
    return session.client("ec2").describe_subnets(Filters=filters)["Subnets"]


def _steps(session: Session, vpc_id: str, run_id: str) -> Iterator[Callable[[], None]]:
    """In the order that EC2 allows; all their waits together are bounded."""
    bounded = session.within(DEPENDENCY_S)
    yield lambda: _wait_for_interfaces(bounded, vpc_id, run_id)
    if _foreign_interfaces(bounded, vpc_id, run_id):
        # No waiting cures that; what nothing of theirs holds goes at once.
        bounded = bounded.within(PROPAGATION_S)
    yield lambda: gateways.delete_endpoints(bounded, vpc_id, run_id)
    yield lambda: groups.delete_groups(bounded, vpc_id, run_id)
    yield lambda: gateways.delete_gateways(bounded, vpc_id, run_id)
    yield lambda: _delete_subnets(bounded, vpc_id, run_id)
    yield lambda: _delete_tables(bounded, vpc_id, run_id)
    yield lambda: remove(bounded, bounded.client("ec2").delete_vpc, VpcId=vpc_id)


def _wait_for_interfaces(session: Session, vpc_id: str, run_id: str) -> None:
    """Interfaces outlive their instance by seconds to minutes; a loose one is deleted."""
    ec2 = session.client("ec2")

    def none_left() -> bool | None:
        found = _interfaces(session, vpc_id, run_id)
        for interface in found:
            if interface["Status"] == "available":
                name = interface["NetworkInterfaceId"]
                remove(session, ec2.delete_network_interface, NetworkInterfaceId=name)
        return None if found else True

    if not session.patience.until(none_left, timeout_s=DEPENDENCY_S):
        names = "; ".join(interface_words(row) for row in _interfaces(session, vpc_id, run_id))
        raise ApiError(
            f"Network interfaces in {vpc_id} are still in use: {names}",
            hint="Something in the VPC still runs; end it and run `gpurun down` again.",
        )


def _interfaces(session: Session, vpc_id: str, run_id: str) -> list[NetworkInterfaceTypeDef]:
    """The run's own."""
    filters = [where("vpc-id", vpc_id), *of_run(run_id)]
    return session.client("ec2").describe_network_interfaces(Filters=filters)["NetworkInterfaces"]


def _foreign_interfaces(session: Session, vpc_id: str, run_id: str) -> bool:
    found = session.client("ec2").describe_network_interfaces(Filters=[where("vpc-id", vpc_id)])
    return any(not is_of(run_id, interface) for interface in found["NetworkInterfaces"])


def _delete_subnets(session: Session, vpc_id: str, run_id: str) -> None:
    ec2 = session.client("ec2")
    found = _subnets(session, vpc_id, *of_run(run_id))
    all_of(
        partial(remove, session, ec2.delete_subnet, SubnetId=subnet["SubnetId"])
        for subnet in found
    )


def _delete_tables(session: Session, vpc_id: str, run_id: str) -> None:
    """The main table has no association of its own to undo and goes with the VPC."""
    ec2 = session.client("ec2")
    filters = [where("vpc-id", vpc_id), *of_run(run_id)]
    for table in ec2.describe_route_tables(Filters=filters)["RouteTables"]:
        if not any(link.get("Main") for link in table["Associations"]):
            remove(session, ec2.delete_route_table, RouteTableId=table["RouteTableId"])
