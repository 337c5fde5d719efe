"""EC2: VPCs, subnets, route tables and interfaces, deleted in no order but EC2's."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from tests.faults.cloud.filters import matching
from tests.faults.cloud.refusal import Refused, in_use
from tests.faults.cloud.service import Service, tags_of
from tests.faults.cloud.things import Group, Interface, Json, Rule, Subnet, Table, Vpc

_ANYWHERE = "0.0.0.0/0"


class Vpcs(Service):
    def create_vpc(self, *, CidrBlock: str, TagSpecifications: Iterable[Any] = ()) -> Json:
        account, region = self._account, self._region
        seen = account.visible_at()
        vpc = Vpc(
            id=account.new_id("vpc"),
            visible_at=seen,
            tags=tags_of(TagSpecifications, "vpc"),
            cidr=CidrBlock,
            account=account.id,
        )
        region.vpcs[vpc.id] = vpc
        table = Table(
            id=account.new_id("rtb"), visible_at=seen, vpc_id=vpc.id, local=CidrBlock, main=True
        )
        region.tables[table.id] = table
        group = Group(
            id=account.new_id("sg"),
            visible_at=seen,
            vpc_id=vpc.id,
            name="default",
            about="default VPC security group",
            out_of=[Rule("-1", None, None, _ANYWHERE)],
        )
        group.into.append(Rule("-1", None, None, group.id))
        region.groups[group.id] = group
        return {"Vpc": vpc.describe()}

    def describe_vpcs(self, *, Filters: Iterable[Any] = (), VpcIds: Sequence[str] = ()) -> Json:
        found = self._named("vpc", self._region.vpcs, VpcIds)
        return {"Vpcs": [vpc.describe() for vpc in matching(found, Filters)]}

    def modify_vpc_attribute(
        self, *, VpcId: str, EnableDnsHostnames: Json | None = None, **_: Any
    ) -> Json:
        vpc = self._vpc(VpcId)
        if EnableDnsHostnames:
            vpc.dns_hostnames = EnableDnsHostnames["Value"]
        return {}

    def describe_vpc_attribute(self, *, VpcId: str, Attribute: str) -> Json:
        vpc = self._vpc(VpcId)
        values = {"enableDnsHostnames": vpc.dns_hostnames, "enableDnsSupport": True}
        name = Attribute[0].upper() + Attribute[1:]
        return {"VpcId": vpc.id, name: {"Value": values[Attribute]}}

    def delete_vpc(self, *, VpcId: str) -> Json:
        region, vpc = self._region, self._vpc(VpcId)
        holders: list[Any] = [
            *region.subnets.values(),
            *region.gateways.values(),
            *region.endpoints.values(),
            *region.interfaces.values(),
            *(table for table in region.tables.values() if not table.main),
            *(group for group in region.groups.values() if group.name != "default"),
        ]
        if any(thing.vpc_id == vpc.id for thing in holders):
            raise in_use(f"vpc '{vpc.id}'")
        del region.vpcs[vpc.id]
        for going in (region.tables, region.groups):
            things: dict[str, Any] = going
            for thing in [t for t in things.values() if t.vpc_id == vpc.id]:
                del things[thing.id]
        return {}

    def create_subnet(
        self,
        *,
        VpcId: str,
        CidrBlock: str,
        AvailabilityZone: str = "",
        TagSpecifications: Iterable[Any] = (),
    ) -> Json:
        vpc = self._vpc(VpcId)
        self._check_block(vpc, CidrBlock)
        zone = AvailabilityZone or f"{self._region.name}a"
        self._check_zone(zone)
        subnet = Subnet(
            id=self._account.new_id("subnet"),
            visible_at=self._account.visible_at(),
            tags=tags_of(TagSpecifications, "subnet"),
            vpc_id=vpc.id,
            cidr=CidrBlock,
            zone=zone,
        )
        self._region.subnets[subnet.id] = subnet
        return {"Subnet": subnet.describe()}

    def describe_subnets(
        self, *, Filters: Iterable[Any] = (), SubnetIds: Sequence[str] = ()
    ) -> Json:
        found = self._named("subnet", self._region.subnets, SubnetIds)
        return {"Subnets": [subnet.describe() for subnet in matching(found, Filters)]}

    def modify_subnet_attribute(
        self, *, SubnetId: str, MapPublicIpOnLaunch: Json | None = None
    ) -> Json:
        subnet = self._account.find(self._region.subnets, "subnet", SubnetId)
        if MapPublicIpOnLaunch:
            subnet.public_by_default = MapPublicIpOnLaunch["Value"]
        return {}

    def delete_subnet(self, *, SubnetId: str) -> Json:
        self._account.find(self._region.subnets, "subnet", SubnetId)
        if any(nic.subnet_id == SubnetId for nic in self._region.interfaces.values()):
            raise in_use(f"subnet '{SubnetId}'")
        for table in self._region.tables.values():
            table.subnets = {k: s for k, s in table.subnets.items() if s != SubnetId}
        del self._region.subnets[SubnetId]
        return {}

    def create_network_interface(
        self,
        *,
        SubnetId: str,
        Groups: Sequence[str] = (),
        Description: str = "",
        TagSpecifications: Iterable[Any] = (),
    ) -> Json:
        """A loose one, which our code never makes: somebody else's, or left by a service."""
        subnet = self._account.find(self._region.subnets, "subnet", SubnetId)
        nic = Interface(
            id=self._account.new_id("eni"),
            visible_at=self._account.visible_at(),
            tags=tags_of(TagSpecifications, "network-interface"),
            vpc_id=subnet.vpc_id,
            subnet_id=SubnetId,
            zone=subnet.zone,
            groups=list(Groups),
            about=Description,
        )
        self._region.interfaces[nic.id] = nic
        return {"NetworkInterface": nic.describe()}

    def describe_network_interfaces(
        self, *, Filters: Iterable[Any] = (), NetworkInterfaceIds: Sequence[str] = ()
    ) -> Json:
        found = self._named("network-interface", self._region.interfaces, NetworkInterfaceIds)
        return {"NetworkInterfaces": [nic.describe() for nic in matching(found, Filters)]}

    def delete_network_interface(self, *, NetworkInterfaceId: str) -> Json:
        nic = self._account.find(self._region.interfaces, "network-interface", NetworkInterfaceId)
        if nic.instance_id:
            raise Refused(
                "InvalidParameterValue",
                f"Network interface '{nic.id}' is currently in use.",
            )
        del self._region.interfaces[nic.id]
        return {}

    def _vpc(self, vpc_id: str) -> Vpc:
        return self._account.find(self._region.vpcs, "vpc", vpc_id)

    def _named(self, kind: str, things: dict[str, Any], ids: Sequence[str]) -> list[Any]:
        """All that is visible, or those named: one that isn't there refuses the call."""
        if not ids:
            return self._account.visible(things)
        return [self._account.find(things, kind, name) for name in ids]

    def _check_block(self, vpc: Vpc, cidr: str) -> None:
        block = _network(cidr)
        if not block.subnet_of(_network(vpc.cidr)):
            raise Refused("InvalidSubnet.Range", f"The CIDR '{cidr}' is invalid.")
        for subnet in self._region.subnets.values():
            if subnet.vpc_id == vpc.id and _network(subnet.cidr).overlaps(block):
                raise Refused(
                    "InvalidSubnet.Conflict",
                    f"The CIDR '{cidr}' conflicts with another subnet",
                )

    def _check_zone(self, zone: str) -> None:
        raise NotImplementedError


@lru_cache
def _network(cidr: str) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network(cidr)
