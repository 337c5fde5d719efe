"""EC2: regions, zones, instance types, images and spot prices; all from the catalog."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

from orchestrator.catalog import load_catalog
from tests.faults.cloud.ec2_groups import Groups
from tests.faults.cloud.filters import is_like
from tests.faults.cloud.refusal import Refused
from tests.faults.cloud.things import Json

_DEEP_LEARNING = "/aws/service/deeplearning/ami/x86_64"
# As the local cloud has them: parameter -> image name.
IMAGES = {
    f"{_DEEP_LEARNING}/{kind}-ubuntu-{version}/latest/ami-id": (
        f"Deep Learning {title} (Ubuntu {version}) 20260717"
    )
    for kind, title in (
        ("base-oss-nvidia-driver-gpu", "Base OSS Nvidia Driver GPU AMI"),
        ("base-with-single-cuda", "Base AMI with Single CUDA"),
    )
    for version in ("22.04", "24.04")
}
ROOT_DEVICE, SNAPSHOT_GB = "/dev/sda1", 75
_SPOT_SHARE = Decimal("0.4")
_ZONE_LETTERS = {"us-east-1": "abcdef"}


@cache
def image_id(parameter: str, region: str) -> str:
    return "ami-" + hashlib.sha256(f"{region} {parameter}".encode()).hexdigest()[:17]


@cache
def zones_of(region: str) -> tuple[str, ...]:
    return tuple(region + letter for letter in _ZONE_LETTERS.get(region, "abc"))


@cache
def images_of(region: str) -> dict[str, str]:
    """Image names by id."""
    return {image_id(parameter, region): name for parameter, name in IMAGES.items()}


@cache
def offers_of(region: str) -> frozenset[tuple[str, str]]:
    types = load_catalog().table.types
    return frozenset((name, z) for name in types for z in types[name].zones.get(region, ()))


@cache
def _offerings(region: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(offers_of(region)))


class Places(Groups):
    def describe_regions(self, *, AllRegions: bool = False) -> Json:
        return {"Regions": [{"RegionName": name} for name in load_catalog().regions]}

    def describe_availability_zones(self, *, Filters: Iterable[Any] = ()) -> Json:
        zones = [
            {
                "ZoneName": name,
                "State": "available",
                "ZoneType": "availability-zone",
                "OptInStatus": "opt-in-not-required",
                "RegionName": self._region.name,
            }
            for name in zones_of(self._region.name)
        ]
        keys = {"zone-type": "ZoneType", "zone-name": "ZoneName", "state": "State"}
        return {"AvailabilityZones": _rows(zones, keys, Filters)}

    def describe_instance_type_offerings(
        self, *, LocationType: str = "region", Filters: Iterable[Any] = ()
    ) -> Json:
        region = self._region.name
        places = _offerings(region)
        if LocationType == "region":
            places = tuple(sorted({(name, region) for name, _ in places}))
        rows = [
            {"InstanceType": name, "LocationType": LocationType, "Location": place}
            for name, place in places
        ]
        keys = {"instance-type": "InstanceType", "location": "Location"}
        return {"InstanceTypeOfferings": _rows(rows, keys, Filters)}

    def describe_instance_types(
        self, *, InstanceTypes: Sequence[str] = (), Filters: Iterable[Any] = ()
    ) -> Json:
        types = load_catalog().table.types
        for name in InstanceTypes:
            if name not in types:
                raise Refused("InvalidInstanceType", f"The instance type '{name}' is unknown")
        rows = [
            {"InstanceType": name, "VCpuInfo": {"DefaultVCpus": types[name].vcpus}}
            for name in InstanceTypes or sorted(types)
        ]
        return {"InstanceTypes": _rows(rows, {"instance-type": "InstanceType"}, Filters)}

    def describe_images(
        self, *, Filters: Iterable[Any] = (), ImageIds: Sequence[str] = ()
    ) -> Json:
        known = images_of(self._region.name)
        for name in ImageIds:
            if name not in known:
                raise Refused("InvalidAMIID.NotFound", f"The image id '[{name}]' does not exist")
        rows = [_image(name, known[name]) for name in ImageIds or known]
        return {"Images": _rows(rows, {"image-id": "ImageId", "name": "Name"}, Filters)}

    def describe_spot_price_history(
        self,
        *,
        InstanceTypes: Sequence[str] = (),
        ProductDescriptions: Sequence[str] = (),
        Filters: Iterable[Any] = (),
        AvailabilityZone: str = "",
        StartTime: Any = None,
        EndTime: Any = None,
        MaxResults: int = 1000,
    ) -> Json:
        now = self._account.timeline.time().replace(microsecond=0)
        rows = [
            {
                "InstanceType": name,
                "AvailabilityZone": zone,
                "ProductDescription": "Linux/UNIX",
                "SpotPrice": str(price),
                "Timestamp": now,
            }
            for name, zone in _offerings(self._region.name)
            if (not InstanceTypes or name in InstanceTypes) and AvailabilityZone in ("", zone)
            if (price := self._spot_price(name, zone)) is not None
        ]
        keys = {
            "instance-type": "InstanceType",
            "availability-zone": "AvailabilityZone",
            "product-description": "ProductDescription",
        }
        return {"SpotPriceHistory": _rows(rows, keys, Filters)[:MaxResults], "NextToken": ""}

    def _spot_price(self, name: str, zone: str) -> Decimal | None:
        listed = load_catalog().prices.instances.usd_per_hour.get(self._region.name, {})
        if name not in listed:
            return None
        usual = (listed[name] * _SPOT_SHARE).quantize(Decimal("0.000001"))
        return self._account.spot_prices.get((name, zone), usual)

    def _check_zone(self, zone: str) -> None:
        if zone not in zones_of(self._region.name):
            raise Refused("InvalidParameterValue", f"Value ({zone}) is invalid.")


def _image(name: str, title: str) -> Json:
    ebs = {"VolumeSize": SNAPSHOT_GB, "VolumeType": "gp3", "DeleteOnTermination": True}
    return {
        "ImageId": name,
        "Name": title,
        "State": "available",
        "RootDeviceName": ROOT_DEVICE,
        "BlockDeviceMappings": [{"DeviceName": ROOT_DEVICE, "Ebs": ebs}],
    }


def _rows(rows: list[Json], keys: dict[str, str], filters: Iterable[Any]) -> list[Json]:
    """Filtered by the fields that the filters' names stand for."""
    for each in filters:
        if each["Name"] not in keys:
            raise Refused("InvalidParameterValue", f"The filter '{each['Name']}' is invalid")
        key = keys[each["Name"]]
        rows = [row for row in rows if is_like(row[key], each["Values"])]
    return rows
