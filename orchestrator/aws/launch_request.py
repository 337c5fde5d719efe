"""What is asked of EC2 for a box: a pure function of the box as the plan wants it.

The ClientToken is a hash of run, box, attempt, zone and type, so that a call whose answer got lost
can be sent again by any controller.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from orchestrator.aws.images import Ami
from orchestrator.aws.network import Network
from orchestrator.aws.tags import RunTags, guarded, named
from orchestrator.errors import LaunchError

if TYPE_CHECKING:
    from mypy_boto3_ec2.literals import ResourceTypeType
    from mypy_boto3_ec2.type_defs import TagSpecificationTypeDef

USER_DATA_LIMIT = 16_384


@dataclass(frozen=True)
class LaunchRequest:
    """One box as the plan wants it."""

    tags: RunTags
    box: str
    instance_types: tuple[str, ...]
    """The first choice, then the fallbacks."""
    ami: Ami
    user_data: str
    profile: str
    key_name: str
    disk_gb: int
    attempt: int
    """Counts from 1. An attempt whose instance has ended can't be launched again."""
    price_by_type: Mapping[str, Decimal]
    """On-demand $/h: the tag that tells what an instance costs at most, and a spot box's limit."""
    spot: bool = False
    quota_code: str = ""
    """Counts the box's vCPUs; only told when it is used up."""
    vcpus: int = 0
    cpu_credits: str | None = None
    """Of burstable types: `standard` never costs more than the price, `unlimited` may."""


def check_size(request: LaunchRequest) -> None:
    """Refuse user data that EC2 would refuse.

    Raises:
        LaunchError: it has more than 16,384 bytes.
    """
    size = len(request.user_data.encode())
    if size > USER_DATA_LIMIT:
        raise LaunchError(
            f"The user data of {request.box} has {size} bytes; EC2 takes {USER_DATA_LIMIT}",
            hint="Nothing was launched; shorten what the boot script carries.",
        )


def client_token(request: LaunchRequest, instance_type: str, zone: str) -> str:
    """64 characters, the most that EC2 takes."""
    parts = (request.tags.run_id, request.box, str(request.attempt), zone, instance_type)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def run_request(
    request: LaunchRequest, network: Network, instance_type: str, zone: str
) -> dict[str, Any]:
    """The parameters of RunInstances."""
    parameters = _parameters(request, network, instance_type, zone)
    if request.spot:
        parameters["InstanceMarketOptions"] = _spot(request.price_by_type[instance_type])
    return parameters


def _spot(on_demand: Decimal) -> dict[str, Any]:
    """One-time, so that nothing is launched behind our back; at most what was reserved for it."""
    return {
        "MarketType": "spot",
        "SpotOptions": {
            "SpotInstanceType": "one-time",
            "InstanceInterruptionBehavior": "terminate",
            "MaxPrice": f"{on_demand:f}",
        },
    }


def _parameters(
    request: LaunchRequest, network: Network, instance_type: str, zone: str
) -> dict[str, Any]:
    return {
        "ImageId": request.ami.id,
        "InstanceType": instance_type,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": client_token(request, instance_type, zone),
        "UserData": request.user_data,
        "KeyName": request.key_name,
        "IamInstanceProfile": {"Name": request.profile},
        # EC2's default is to stop, which keeps the volume and its price.
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
            "InstanceMetadataTags": "enabled",
        },
        **_burst(request),
        "BlockDeviceMappings": [_root(request)],
        "NetworkInterfaces": [
            {
                "DeviceIndex": 0,
                "SubnetId": network.subnets[zone],
                "Groups": [network.group_id],
                "AssociatePublicIpAddress": True,
                "DeleteOnTermination": True,
            }
        ],
        "TagSpecifications": [
            *_tagged(request, instance_type, "instance", guard=True),
            *_tagged(request, instance_type, "volume", "network-interface"),
        ],
    }


def _tagged(
    request: LaunchRequest, instance_type: str, *kinds: ResourceTypeType, guard: bool = False
) -> list[TagSpecificationTypeDef]:
    run_id = request.tags.run_id
    return request.tags.spec(
        *kinds,
        role="box",
        name=named(run_id, request.box),
        box=request.box,
        attempt=str(request.attempt),
        price_per_hour=str(request.price_by_type[instance_type]),
        **({"guard": guarded(run_id, request.box)} if guard else {}),
    )


def _burst(request: LaunchRequest) -> dict[str, Any]:
    credits_of = request.cpu_credits
    return {"CreditSpecification": {"CpuCredits": credits_of}} if credits_of else {}


def _root(request: LaunchRequest) -> dict[str, Any]:
    return {
        "DeviceName": request.ami.root_device,
        "Ebs": {
            "VolumeSize": max(request.disk_gb, request.ami.snapshot_gb),
            "VolumeType": "gp3",
            "Encrypted": True,
            "DeleteOnTermination": True,
        },
    }
