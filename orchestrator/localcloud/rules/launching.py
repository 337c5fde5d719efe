"""RunInstances as EC2 answers it: tokens, limits, names, quota, capacity, late profiles."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.responses.instances import InstanceResponse
from moto.iam.models import iam_backends
from werkzeug.exceptions import HTTPException

from orchestrator.localcloud.rules.patches import Patches
from orchestrator.localcloud.rules.settings import (
    G_AND_VT_ON_DEMAND,
    G_AND_VT_SPOT,
    P_ON_DEMAND,
    STANDARD_ON_DEMAND,
    StrictRules,
)

USER_DATA_LIMIT_BYTES = 16_384
# Parameters that may differ between two calls with one ClientToken.
_NOT_COMPARED = {"Action", "Version", "ClientToken", "Placement.AvailabilityZone", "DryRun"}


class CapacityRefused(HTTPException):
    """InsufficientInstanceCapacity comes as HTTP 500, so that botocore's own retries see it."""

    code = 500

    def __init__(self, message: str) -> None:
        super().__init__()
        self.description = (
            "<Response><Errors><Error><Code>InsufficientInstanceCapacity</Code>"
            f"<Message>{message}</Message></Error></Errors><RequestID>local</RequestID></Response>"
        )

    def get_headers(self, *_args: Any, **_kwargs: Any) -> list[tuple[str, str]]:
        return [("Content-Type", "text/xml")]


def install(patches: Patches, rules: StrictRules) -> None:
    patches.replace(InstanceResponse, "run_instances", lambda stock: _response(stock, rules))
    patches.replace(EC2Backend, "run_instances", lambda stock: _backend(stock, rules))


def _response(stock: Any, rules: StrictRules) -> Any:
    def run_instances(self: Any) -> Any:
        token = self._get_param("ClientToken")
        key = (self.current_account, self.region, token)
        asked = {k: v for k, v in self.data.items() if k not in _NOT_COMPARED}
        if token and key in rules.client_tokens:
            return _same_answer(*rules.client_tokens[key], asked=asked)
        _check_profile(self, rules)
        self.ec2_backend.strict_max_count = int(self._get_param("MaxCount", if_none="1"))
        answer = stock(self)
        _apply_what_moto_drops(self, answer.result.instances)
        if token:
            rules.client_tokens[key] = (asked, answer.result)
        return answer

    return run_instances


def _same_answer(first: object, reservation: Any, *, asked: object) -> Any:
    if first != asked:
        raise EC2ClientError(
            "IdempotentParameterMismatch",
            "Arguments on this idempotent request are inconsistent with arguments used in "
            "previous request(s).",
        )
    if all(i._state.name == "terminated" for i in reservation.instances):
        raise EC2ClientError(
            "IdempotentInstanceTerminated",
            "The client token you have provided is associated with a resource that is already "
            "deleted. Please use a different client token.",
        )
    return ActionResult(reservation)


def _check_profile(response: Any, rules: StrictRules) -> None:
    name = response._get_param("IamInstanceProfile.Name")
    arn = response._get_param("IamInstanceProfile.Arn")
    if not name and not arn:
        return
    profiles: dict[str, Any] = iam_backends[response.current_account][
        response.partition
    ].instance_profiles
    found = [p for p in profiles.values() if p.name == name or p.arn == arn]
    age_wanted = timedelta(seconds=rules.profile_delay_s)
    if not found or rules.now() < found[0].strict_created_at + age_wanted:
        field = "name" if name else "arn"
        raise EC2ClientError(
            "InvalidParameterValue",
            f"Value ({name or arn}) for parameter iamInstanceProfile.{field} is invalid. "
            f"Invalid IAM Instance Profile {field}",
        )


def _apply_what_moto_drops(response: Any, instances: list[Any]) -> None:
    protected = str(response._get_param("DisableApiTermination") or "").lower() == "true"
    eni_tags = response._parse_tag_specification().get("network-interface", {})
    for instance in instances:
        instance.disable_api_termination = protected
        for nic in instance.nics.values():
            nic.add_tags(eni_tags)
        for mapping in response._get_param("BlockDeviceMappings", []):
            _set_speed(response.ec2_backend, instance, mapping)


def _set_speed(backend: Any, instance: Any, mapping: dict[str, Any]) -> None:
    attached = instance.block_device_mapping.get(mapping.get("DeviceName"))
    if attached is None:
        return
    volume, asked = backend.volumes[attached.volume_id], mapping.get("Ebs", {})
    for name in ("Iops", "Throughput"):
        if asked.get(name) is not None:
            setattr(volume, name.lower(), int(asked[name]))


def _backend(stock: Any, rules: StrictRules) -> Any:
    def run_instances(
        self: Any, image_id: str, count: int, user_data: Any, *a: Any, **k: Any
    ) -> Any:
        raw = base64.b64decode(str(user_data)) if user_data else b""
        _check_names(self, image_id, raw, k)
        _check_groups(self, k)
        rules.life.check_launch(self, k["instance_type"], raw)
        zone = _zone(self, k)
        wanted = max(count, self.__dict__.pop("strict_max_count", count))
        kind = (k["instance_type"], bool(k.get("instance_market_options")))
        granted = _grant(self, rules, kind, zone, at_least=count, wanted=wanted)
        reservation = stock(self, image_id, granted, user_data, *a, **k)
        for instance in reservation.instances:
            rules.life.launched(instance)
        return reservation

    return run_instances


def _check_names(backend: Any, image_id: str, user_data: bytes, k: dict[str, Any]) -> None:
    if len(user_data) > USER_DATA_LIMIT_BYTES:
        raise EC2ClientError("InvalidParameterValue", "User data is limited to 16384 bytes")
    images = backend.describe_images(ami_ids=[image_id])
    if k["instance_type"] not in INSTANCE_TYPES:
        raise EC2ClientError(
            "InvalidParameterValue", f"Invalid value '{k['instance_type']}' for InstanceType."
        )
    if k.get("key_name"):
        backend.describe_key_pairs(key_names=[k["key_name"]])
    snapshot_gb = images[0].ebs_snapshot.volume.size
    for mapping in k.get("block_device_mappings") or []:
        size = mapping["Ebs"].get("VolumeSize")
        if mapping["DeviceName"] == images[0].root_device_name and int(size or 0) < snapshot_gb:
            raise EC2ClientError(
                "InvalidBlockDeviceMapping",
                f"Volume of size {size}GB is smaller than snapshot "
                f"'{images[0].ebs_snapshot.id}', expect size >= {snapshot_gb}GB",
            )


def _check_groups(backend: Any, k: dict[str, Any]) -> None:
    """They are of the subnet's VPC, or of the default one where no subnet is named."""
    subnet_id = _subnet_id(k)
    vpc = backend.get_vpc(backend.get_subnet(subnet_id).vpc_id) if subnet_id else None
    vpc = vpc or backend.get_default_vpc()
    groups = [*k.get("security_group_ids", ()), *(g for nic in k["nics"] for g in _worn_by(nic))]
    for group_id in groups:
        group = backend.get_security_group_from_id(group_id)
        if group is None:
            message = f"The security group '{group_id}' does not exist"
            raise EC2ClientError("InvalidGroup.NotFound", message)
        if vpc and group.vpc_id != vpc.id:
            raise EC2ClientError(
                "InvalidParameter",
                f"Security group {group_id} and subnet {subnet_id or f'of {vpc.id}'} belong to "
                "different networks.",
            )


def _worn_by(nic: dict[str, Any]) -> list[str]:
    return list(nic.get("Groups") or ())


def _subnet_id(k: dict[str, Any]) -> str | None:
    return k.get("subnet_id") or next(
        (nic["SubnetId"] for nic in k.get("nics", []) if "SubnetId" in nic), None
    )


def _zone(backend: Any, k: dict[str, Any]) -> str:
    subnet_id = _subnet_id(k)
    if subnet_id:
        return str(backend.get_subnet(subnet_id).availability_zone)
    return str(k.get("placement") or backend.region_name + "a")


def _grant(
    backend: Any,
    rules: StrictRules,
    kind: tuple[str, bool],
    zone: str,
    *,
    at_least: int,
    wanted: int,
) -> int:
    """How many instances of `wanted` may start now; raises when fewer than `at_least`.

    `kind`: instance type, and whether it is spot.
    """
    instance_type, spot = kind
    offered = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(backend.region_name, [])
    if not any(o["InstanceType"] == instance_type and o["Location"] == zone for o in offered):
        raise EC2ClientError(
            "Unsupported",
            f"Your requested instance type ({instance_type}) is not supported in your requested "
            f"Availability Zone ({zone}).",
        )
    alive = [i for i in backend.all_instances() if i._state.name in ("pending", "running")]
    code, vcpus = quota_of(instance_type, spot=spot)
    limit = rules.vcpu_limits.get(code, 0)
    counted = [quota_of(i.instance_type, spot=i.lifecycle == "spot") for i in alive]
    used = sum(size for of, size in counted if of == code)
    under_quota = max(0, (limit - used) // vcpus)
    if under_quota < at_least:
        raise _over_quota(limit, spot=spot)
    here = sum(i.instance_type == instance_type and i.placement.zone == zone for i in alive)
    room = rules.capacity.get((instance_type, zone), here + wanted) - here
    if room < at_least:
        raise CapacityRefused(
            f"We currently do not have sufficient {instance_type} capacity in the Availability "
            f"Zone you requested ({zone})."
        )
    return int(min(wanted, under_quota, room))


def _over_quota(limit: int, *, spot: bool) -> EC2ClientError:
    if spot:
        return EC2ClientError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
    return EC2ClientError(
        "VcpuLimitExceeded",
        f"You have requested more vCPU capacity than your current vCPU limit of {limit} "
        "allows for the instance bucket that the specified instance type belongs to.",
    )


def quota_of(instance_type: str, *, spot: bool = False) -> tuple[str, int]:
    """The quota code that counts this type, and its vCPUs; spot P and standard aren't known."""
    vcpus = int(INSTANCE_TYPES[instance_type]["VCpuInfo"]["DefaultVCpus"])
    if instance_type.startswith(("g", "vt")):
        return (G_AND_VT_SPOT if spot else G_AND_VT_ON_DEMAND), vcpus
    return (P_ON_DEMAND if instance_type.startswith("p") else STANDARD_ON_DEMAND), vcpus
