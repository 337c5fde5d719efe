"""EC2: RunInstances: a token launches once, quota and capacity are counted, late ids unknown."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

from orchestrator.catalog import load_catalog
from orchestrator.errors import CatalogError
from orchestrator.localcloud.rules.settings import (
    G_AND_VT_ON_DEMAND,
    P_ON_DEMAND,
    STANDARD_ON_DEMAND,
)
from tests.faults.cloud import life
from tests.faults.cloud.ec2_places import ROOT_DEVICE, SNAPSHOT_GB, Places, images_of, offers_of
from tests.faults.cloud.instance import Instance
from tests.faults.cloud.refusal import Refused
from tests.faults.cloud.service import tags_of
from tests.faults.cloud.settings import SPOT_QUOTAS
from tests.faults.cloud.things import Interface, Json, Subnet, Volume

USER_DATA_LIMIT_BYTES = 16_384
_KNOWN = frozenset(
    {
        "BlockDeviceMappings",
        "ClientToken",
        "CreditSpecification",
        "DisableApiTermination",
        "EbsOptimized",
        "IamInstanceProfile",
        "ImageId",
        "InstanceInitiatedShutdownBehavior",
        "InstanceMarketOptions",
        "InstanceType",
        "KeyName",
        "MaxCount",
        "MetadataOptions",
        "MinCount",
        "NetworkInterfaces",
        "Placement",
        "SecurityGroupIds",
        "SubnetId",
        "TagSpecifications",
        "UserData",
    }
)


@dataclass(frozen=True)
class _Order:
    """A request that may be met, and where."""

    asked: Json
    subnet: Subnet
    groups: list[str]
    public: bool
    profile_arn: str


class Launching(Places):
    def run_instances(self, **asked: Any) -> Json:
        if unknown := set(asked) - _KNOWN:
            raise TypeError(f"the model's run_instances doesn't know {sorted(unknown)}")
        token = asked.get("ClientToken", "")
        key = (self._region.name, token)
        compared = _compared(asked)
        if token and key in self._account.tokens:
            return self._same_answer(key, compared)
        order = self._checked(asked)
        count = self._granted(asked, order.subnet.zone)
        made = [self._make(order) for _ in range(count)]
        if token:
            self._account.tokens[key] = (compared, made)
        for instance in made:
            life.launched(self._account, instance)
        return self._reservation(made)

    def _same_answer(self, key: tuple[str, str], compared: Json) -> Json:
        first, made = self._account.tokens[key]
        if first != compared:
            raise Refused(
                "IdempotentParameterMismatch",
                "Arguments on this idempotent request are inconsistent with arguments used in "
                "previous request(s).",
            )
        if all(instance.state == "terminated" for instance in made):
            raise Refused(
                "IdempotentInstanceTerminated",
                "The client token you have provided is associated with a resource that is "
                "already deleted. Please use a different client token.",
            )
        return self._reservation(made)

    def _reservation(self, made: list[Instance]) -> Json:
        return {"Instances": [i.describe() for i in made], "OwnerId": self._account.id}

    def _checked(self, asked: Json) -> _Order:
        arn = self._profile_arn(asked.get("IamInstanceProfile") or {})
        self._check_names(asked)
        nic = (asked.get("NetworkInterfaces") or [{}])[0]
        subnet = self._subnet_of(nic.get("SubnetId") or asked.get("SubnetId"), asked)
        groups = list(nic.get("Groups") or asked.get("SecurityGroupIds") or ())
        for group in groups:
            if self._group(group).vpc_id != subnet.vpc_id:
                raise Refused(
                    "InvalidParameter",
                    f"Security group {group} and subnet {subnet.id} belong to different networks.",
                )
        if (asked["InstanceType"], subnet.zone) not in offers_of(self._region.name):
            raise Refused(
                "Unsupported",
                f"Your requested instance type ({asked['InstanceType']}) is not supported in "
                f"your requested Availability Zone ({subnet.zone}).",
            )
        self._check_spot_price(asked, subnet.zone)
        public = nic.get("AssociatePublicIpAddress", subnet.public_by_default)
        return _Order(asked, subnet, groups or self._default_group(subnet.vpc_id), public, arn)

    def _profile_arn(self, asked: Json) -> str:
        name, arn = asked.get("Name", ""), asked.get("Arn", "")
        if not name and not arn:
            return ""
        name = name or arn.rpartition("/")[2]
        profile = self._account.profiles.get(name)
        known_since = self._account.timeline.ago(self._rules.profile_delay_s)
        if profile is None or profile.made_at > known_since:
            field = "name" if asked.get("Name") else "arn"
            raise Refused(
                "InvalidParameterValue",
                f"Value ({name}) for parameter iamInstanceProfile.{field} is invalid. "
                f"Invalid IAM Instance Profile {field}",
            )
        return profile.arn

    def _check_names(self, asked: Json) -> None:
        if len(asked.get("UserData", "").encode()) > USER_DATA_LIMIT_BYTES:
            raise Refused("InvalidParameterValue", "User data is limited to 16384 bytes")
        if asked["ImageId"] not in images_of(self._region.name):
            message = f"The image id '[{asked['ImageId']}]' does not exist"
            raise Refused("InvalidAMIID.NotFound", message)
        self._check_type(asked["InstanceType"])
        if asked.get("KeyName"):
            self._key(asked["KeyName"])
        for mapping in asked.get("BlockDeviceMappings", ()):
            size = mapping["Ebs"].get("VolumeSize", SNAPSHOT_GB)
            if mapping["DeviceName"] == ROOT_DEVICE and size < SNAPSHOT_GB:
                raise Refused(
                    "InvalidBlockDeviceMapping",
                    f"Volume of size {size}GB is smaller than snapshot, expect size >= "
                    f"{SNAPSHOT_GB}GB",
                )

    def _check_type(self, name: str) -> None:
        if name not in load_catalog().table.types:
            raise Refused("InvalidParameterValue", f"Invalid value '{name}' for InstanceType.")
        try:
            self._account.meter.price_of(name, self._region.name)
        except CatalogError as unknown:
            raise Refused("Unsupported", f"The model can't bill it: {unknown.message}") from None

    def _check_spot_price(self, asked: Json, zone: str) -> None:
        """A limit below the price of today is refused."""
        if not _is_spot(asked):
            return
        most = asked["InstanceMarketOptions"].get("SpotOptions", {}).get("MaxPrice")
        price = self._spot_price(asked["InstanceType"], zone)
        if most is not None and price is not None and Decimal(most) < price:
            raise Refused(
                "SpotMaxPriceTooLow",
                f"Your Spot request price of {most} is lower than the minimum required Spot "
                f"request fulfillment price of {price}.",
            )

    def _subnet_of(self, subnet_id: str | None, asked: Json) -> Subnet:
        if subnet_id:
            return self._account.find(self._region.subnets, "subnet", subnet_id)
        zone = asked.get("Placement", {}).get("AvailabilityZone") or f"{self._region.name}a"
        return self._default_subnet(zone)

    def _default_subnet(self, zone: str) -> Subnet:
        """Of the default VPC that every account begins with; nothing of it is shown."""
        now = self._account.timeline.time()
        return Subnet(
            id="subnet-default", visible_at=now, vpc_id="vpc-default", cidr="", zone=zone
        )

    def _default_group(self, vpc_id: str) -> list[str]:
        groups = self._region.groups.values()
        return [g.id for g in groups if g.vpc_id == vpc_id and g.name == "default"]

    def _granted(self, asked: Json, zone: str) -> int:
        """How many of those asked for may start now."""
        name, at_least = asked["InstanceType"], asked["MinCount"]
        spot = _is_spot(asked)
        room = self._under_quota(name, at_least, spot=spot)
        limit = self._rules.capacity.get((name, zone))
        if limit is not None:
            here = sum(i.type == name and i.zone == zone for i in self._counted())
            room = min(room, max(0, limit - here))
            if room < at_least:
                raise Refused(
                    "InsufficientInstanceCapacity",
                    f"We currently do not have sufficient {name} capacity in the Availability "
                    f"Zone you requested ({zone}).",
                    500,
                )
        return int(min(asked["MaxCount"], room))

    def _under_quota(self, name: str, at_least: int, *, spot: bool) -> int:
        code, vcpus = quota_of(name, spot=spot)
        alive = [i for i in self._counted() if quota_of(i.type, spot=i.spot)[0] == code]
        limit = self._rules.vcpu_limits.get(code, 0)
        room = max(0, limit - sum(quota_of(i.type, spot=spot)[1] for i in alive)) // vcpus
        if room < at_least and spot:
            raise Refused("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
        if room < at_least:
            raise Refused(
                "VcpuLimitExceeded",
                f"You have requested more vCPU capacity than your current vCPU limit of {limit} "
                "allows for the instance bucket that the specified instance type belongs to.",
            )
        return room

    def _counted(self) -> list[Instance]:
        running = ("pending", "running")
        return [i for i in self._region.instances.values() if i.state in running]

    def _make(self, order: _Order) -> Instance:
        account, asked, subnet = self._account, order.asked, order.subnet
        specs = asked.get("TagSpecifications", ())
        spot = _is_spot(asked)
        number = len(account.instances) + 1
        address = f"{number // 250 % 250}.{number % 250 + 1}"
        instance = Instance(
            id=account.new_id("i"),
            visible_at=account.visible_at(),
            tags=tags_of(specs, "instance"),
            type=asked["InstanceType"],
            zone=subnet.zone,
            region=self._region.name,
            user_data=asked.get("UserData", ""),
            launched_at=account.timeline.time().replace(microsecond=0),
            shutdown_behavior=asked.get("InstanceInitiatedShutdownBehavior", "stop"),
            protected=asked.get("DisableApiTermination", False),
            spot=spot,
            spot_request=account.new_id("sir") if spot else "",
            profile=order.profile_arn.rpartition("/")[2],
            profile_arn=order.profile_arn,
            image=asked["ImageId"],
            key=asked.get("KeyName", ""),
            token=asked.get("ClientToken", ""),
            subnet_id=subnet.id,
            vpc_id=subnet.vpc_id,
            groups=order.groups,
            private_ip=f"10.71.{address}",
            public_ip=f"198.18.{address}" if order.public else None,
            interface_id=account.new_id("eni"),
            metadata=dict(asked.get("MetadataOptions", {})),
        )
        self._make_interface(instance, specs)
        self._make_volumes(instance, asked, specs)
        return instance

    def _make_interface(self, instance: Instance, specs: Any) -> None:
        self._region.interfaces[instance.interface_id] = Interface(
            id=instance.interface_id,
            visible_at=instance.visible_at,
            tags=tags_of(specs, "network-interface"),
            vpc_id=instance.vpc_id,
            subnet_id=instance.subnet_id,
            zone=instance.zone,
            groups=instance.groups,
            instance_id=instance.id,
            private_ip=instance.private_ip,
            public_ip=instance.public_ip,
        )

    def _make_volumes(self, instance: Instance, asked: Json, specs: Any) -> None:
        mappings = {ROOT_DEVICE: {"VolumeSize": SNAPSHOT_GB, "DeleteOnTermination": True}}
        mappings |= {m["DeviceName"]: m["Ebs"] for m in asked.get("BlockDeviceMappings", ())}
        for device, ebs in mappings.items():
            volume = Volume(
                id=self._account.new_id("vol"),
                visible_at=instance.visible_at,
                tags=tags_of(specs, "volume"),
                size_gb=int(ebs.get("VolumeSize", SNAPSHOT_GB)),
                zone=instance.zone,
                type=str(ebs.get("VolumeType", "gp3")),
                iops=int(ebs.get("Iops", 3000)),
                throughput=int(ebs.get("Throughput", 125)),
                encrypted=bool(ebs.get("Encrypted")),
                instance_id=instance.id,
                device=device,
                ends_with_instance=bool(ebs.get("DeleteOnTermination", True)),
            )
            self._region.volumes[volume.id] = volume
            instance.devices[device] = volume.id


def _is_spot(asked: Json) -> bool:
    return bool(asked.get("InstanceMarketOptions", {}).get("MarketType") == "spot")


@cache
def quota_of(instance_type: str, *, spot: bool) -> tuple[str, int]:
    """The quota code that counts such an instance, and its vCPUs."""
    vcpus = load_catalog().instance(instance_type).vcpus
    code = STANDARD_ON_DEMAND
    if instance_type.startswith(("g", "vt")):
        code = G_AND_VT_ON_DEMAND
    elif instance_type.startswith("p"):
        code = P_ON_DEMAND
    return (SPOT_QUOTAS[code] if spot else code), vcpus


def _compared(asked: Json) -> Json:
    """What two calls with one token must have in common; the zone may differ."""
    kept = {k: v for k, v in asked.items() if k not in ("ClientToken", "Placement")}
    placement = {k: v for k, v in asked.get("Placement", {}).items() if k != "AvailabilityZone"}
    return kept | ({"Placement": placement} if placement else {})
