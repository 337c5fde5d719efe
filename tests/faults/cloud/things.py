"""What the model's EC2 holds: plain records that describe themselves and answer filters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

Json = dict[str, Any]


def tag_list(tags: Mapping[str, str]) -> list[Json]:
    return [{"Key": key, "Value": tags[key]} for key in tags]


@dataclass(kw_only=True)
class Thing:
    """One resource; `kind` is EC2's word for its type."""

    kind: ClassVar[str] = ""
    id: str
    visible_at: datetime
    tags: dict[str, str] = field(default_factory=dict)

    def describe(self) -> Json:
        raise NotImplementedError

    def values(self, name: str) -> list[str] | None:
        """What a filter of that name is compared with; None for a name that isn't known."""
        return None


@dataclass(kw_only=True)
class Vpc(Thing):
    kind = "vpc"
    cidr: str
    dns_hostnames: bool = False
    account: str = ""

    def describe(self) -> Json:
        return {
            "VpcId": self.id,
            "CidrBlock": self.cidr,
            "State": "available",
            "IsDefault": False,
            "OwnerId": self.account,
            "Tags": tag_list(self.tags),
        }

    def values(self, name: str) -> list[str] | None:
        return {"vpc-id": [self.id], "cidr": [self.cidr], "state": ["available"]}.get(name)


@dataclass(kw_only=True)
class Subnet(Thing):
    kind = "subnet"
    vpc_id: str
    cidr: str
    zone: str
    public_by_default: bool = False

    def describe(self) -> Json:
        return {
            "SubnetId": self.id,
            "VpcId": self.vpc_id,
            "CidrBlock": self.cidr,
            "AvailabilityZone": self.zone,
            "State": "available",
            "MapPublicIpOnLaunch": self.public_by_default,
            "Tags": tag_list(self.tags),
        }

    def values(self, name: str) -> list[str] | None:
        if name in ("availability-zone", "availabilityZone"):
            return [self.zone]
        return {"subnet-id": [self.id], "vpc-id": [self.vpc_id]}.get(name)


@dataclass(kw_only=True)
class Gateway(Thing):
    kind = "internet-gateway"
    vpc_id: str | None = None

    def describe(self) -> Json:
        links = [{"VpcId": self.vpc_id, "State": "available"}] if self.vpc_id else []
        return {
            "InternetGatewayId": self.id,
            "Attachments": links,
            "Tags": tag_list(self.tags),
        }

    def values(self, name: str) -> list[str] | None:
        if name == "attachment.vpc-id":
            return [self.vpc_id] if self.vpc_id else []
        return [self.id] if name == "internet-gateway-id" else None


@dataclass(kw_only=True)
class Table(Thing):
    kind = "route-table"
    vpc_id: str
    local: str
    main: bool = False
    routes: dict[str, str] = field(default_factory=dict)
    """Gateway by destination, without the VPC's own addresses."""
    subnets: dict[str, str] = field(default_factory=dict)
    """Subnet by association."""

    def describe(self) -> Json:
        links: list[Json] = [
            {"Main": False, "RouteTableAssociationId": name, "SubnetId": subnet}
            for name, subnet in self.subnets.items()
        ]
        if self.main:
            links.append({"Main": True, "RouteTableAssociationId": f"rtbassoc-{self.id[4:]}"})
        routes = [{"DestinationCidrBlock": self.local, "GatewayId": "local", "State": "active"}]
        routes += [_route(to, gateway) for to, gateway in self.routes.items()]
        return {
            "RouteTableId": self.id,
            "VpcId": self.vpc_id,
            "Associations": [link | {"RouteTableId": self.id} for link in links],
            "Routes": routes,
            "Tags": tag_list(self.tags),
        }

    def values(self, name: str) -> list[str] | None:
        if name == "association.main":
            return ["true" if self.main else "false"]
        return {"route-table-id": [self.id], "vpc-id": [self.vpc_id]}.get(name)


def _route(destination: str, gateway: str) -> Json:
    key = "DestinationPrefixListId" if destination.startswith("pl-") else "DestinationCidrBlock"
    return {key: destination, "GatewayId": gateway, "State": "active"}


@dataclass(kw_only=True)
class Endpoint(Thing):
    kind = "vpc-endpoint"
    vpc_id: str
    service: str
    tables: list[str]
    type: str = "Gateway"
    state: str = "available"
    token: str = ""

    def describe(self) -> Json:
        return {
            "VpcEndpointId": self.id,
            "VpcEndpointType": self.type,
            "VpcId": self.vpc_id,
            "ServiceName": self.service,
            "State": self.state,
            "RouteTableIds": list(self.tables),
            "Tags": tag_list(self.tags),
        }

    def values(self, name: str) -> list[str] | None:
        return {
            "vpc-id": [self.vpc_id],
            "vpc-endpoint-id": [self.id],
            "service-name": [self.service],
            "vpc-endpoint-state": [self.state],
        }.get(name)


@dataclass(kw_only=True)
class Interface(Thing):
    kind = "network-interface"
    vpc_id: str
    subnet_id: str
    zone: str
    groups: list[str]
    instance_id: str | None = None
    private_ip: str = ""
    public_ip: str | None = None
    about: str = ""

    @property
    def status(self) -> str:
        return "in-use" if self.instance_id else "available"

    def describe(self) -> Json:
        seen: Json = {
            "NetworkInterfaceId": self.id,
            "VpcId": self.vpc_id,
            "SubnetId": self.subnet_id,
            "AvailabilityZone": self.zone,
            "Status": self.status,
            "InterfaceType": "interface",
            "Description": self.about,
            "PrivateIpAddress": self.private_ip,
            "Groups": [{"GroupId": group} for group in self.groups],
            "TagSet": tag_list(self.tags),
        }
        if self.instance_id:
            seen["Attachment"] = {"InstanceId": self.instance_id, "Status": "attached"}
        return seen

    def values(self, name: str) -> list[str] | None:
        return {
            "vpc-id": [self.vpc_id],
            "subnet-id": [self.subnet_id],
            "group-id": self.groups,
            "status": [self.status],
            "network-interface-id": [self.id],
            "attachment.instance-id": [self.instance_id] if self.instance_id else [],
        }.get(name)


@dataclass(kw_only=True)
class Volume(Thing):
    kind = "volume"
    size_gb: int
    zone: str
    type: str = "gp3"
    iops: int = 3000
    throughput: int = 125
    encrypted: bool = False
    instance_id: str | None = None
    device: str = ""
    ends_with_instance: bool = False

    @property
    def state(self) -> str:
        return "in-use" if self.instance_id else "available"

    def describe(self) -> Json:
        links = [
            {
                "InstanceId": self.instance_id,
                "Device": self.device,
                "State": "attached",
                "DeleteOnTermination": self.ends_with_instance,
            }
        ]
        return {
            "VolumeId": self.id,
            "Size": self.size_gb,
            "VolumeType": self.type,
            "Iops": self.iops,
            "Throughput": self.throughput,
            "Encrypted": self.encrypted,
            "AvailabilityZone": self.zone,
            "State": self.state,
            "Attachments": links if self.instance_id else [],
            "Tags": tag_list(self.tags),
        }

    def values(self, name: str) -> list[str] | None:
        return {
            "volume-id": [self.id],
            "status": [self.state],
            "attachment.instance-id": [self.instance_id] if self.instance_id else [],
        }.get(name)


@dataclass(kw_only=True)
class Snapshot(Thing):
    kind = "snapshot"
    volume_id: str

    def describe(self) -> Json:
        return {"SnapshotId": self.id, "VolumeId": self.volume_id, "Tags": tag_list(self.tags)}

    def values(self, name: str) -> list[str] | None:
        return [self.id] if name == "snapshot-id" else None


@dataclass(kw_only=True)
class Address(Thing):
    kind = "elastic-ip"
    public_ip: str

    def describe(self) -> Json:
        return {
            "AllocationId": self.id,
            "PublicIp": self.public_ip,
            "Domain": "vpc",
            "Tags": tag_list(self.tags),
        }

    def values(self, name: str) -> list[str] | None:
        return [self.id] if name == "allocation-id" else None


@dataclass(kw_only=True)
class Key(Thing):
    kind = "key-pair"
    name: str
    public: str

    def describe(self) -> Json:
        return {"KeyPairId": self.id, "KeyName": self.name, "Tags": tag_list(self.tags)}

    def values(self, name: str) -> list[str] | None:
        return {"key-name": [self.name], "key-pair-id": [self.id]}.get(name)


@dataclass(frozen=True)
class Rule:
    """One line of a security group: what may pass, from or to whom."""

    protocol: str
    start: int | None
    end: int | None
    peer: str
    """An address range, or a group's id."""
    note: str = field(default="", compare=False)

    @property
    def by_group(self) -> bool:
        return self.peer.startswith("sg-")


@dataclass(kw_only=True)
class Group(Thing):
    kind = "security-group"
    vpc_id: str
    name: str
    about: str
    into: list[Rule] = field(default_factory=list)
    out_of: list[Rule] = field(default_factory=list)

    def describe(self) -> Json:
        return {
            "GroupId": self.id,
            "GroupName": self.name,
            "Description": self.about,
            "VpcId": self.vpc_id,
            "IpPermissions": _permissions(self.into),
            "IpPermissionsEgress": _permissions(self.out_of),
            "Tags": tag_list(self.tags),
        }

    def values(self, name: str) -> list[str] | None:
        return {
            "group-id": [self.id],
            "group-name": [self.name],
            "vpc-id": [self.vpc_id],
        }.get(name)


def _permissions(rules: list[Rule]) -> list[Json]:
    """Rules of the same ports are one permission, as EC2 shows them."""
    found: dict[tuple[str, int | None, int | None], Json] = {}
    for rule in rules:
        ports = (rule.protocol, rule.start, rule.end)
        seen = found.get(ports)
        if seen is None:
            seen = found[ports] = _permission(rule)
        if rule.by_group:
            seen["UserIdGroupPairs"].append({"GroupId": rule.peer})
        else:
            note = {"Description": rule.note} if rule.note else {}
            seen["IpRanges"].append({"CidrIp": rule.peer} | note)
    return list(found.values())


def _permission(rule: Rule) -> Json:
    ports = {"FromPort": rule.start, "ToPort": rule.end} if rule.start is not None else {}
    return {
        "IpProtocol": rule.protocol,
        **ports,
        "IpRanges": [],
        "Ipv6Ranges": [],
        "PrefixListIds": [],
        "UserIdGroupPairs": [],
    }
