"""Launching a box: never two of one, in any zone or fallback type that has room.

The request is a pure function of what was asked; the ClientToken is a hash of run, box, attempt,
zone and type, so that a call whose answer got lost can be sent again by any controller.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from orchestrator.aws.images import Ami
from orchestrator.aws.instances import (
    BoxRecord,
    find_boxes,
    record_of,
    terminate,
    wait_terminated,
)
from orchestrator.aws.network import Network
from orchestrator.aws.refusals import (
    AUTH,
    CAPACITY,
    QUOTA,
    boundary,
    code,
    is_unanswered,
    text,
)
from orchestrator.aws.tags import RunTags, named
from orchestrator.aws.waits import PROPAGATION_S
from orchestrator.errors import CapacityError, LaunchError, QuotaError

if TYPE_CHECKING:
    from orchestrator.aws.session import Session

__all__ = [
    "BoxRecord",
    "LaunchRequest",
    "client_token",
    "find_boxes",
    "launch",
    "run_request",
    "terminate",
    "wait_terminated",
]

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
    """$/h, for the tag that tells what an instance costs."""


@boundary()
def launch(session: Session, request: LaunchRequest, network: Network) -> BoxRecord:
    """The box's instance: the one that lives already, or a new one.

    Tries every zone for the first type, then for each fallback. Fresh roles, keys and subnets
    that EC2 doesn't know yet are waited for, a minute at most.

    Raises:
        CapacityError: no zone has any of the types now.
        QuotaError: the account may not run any of the types on top of what it runs.
        LaunchError: EC2 refuses for a reason that another zone can't cure.
        ApiError: no answer; call again, the same attempt yields the same instance.
    """
    _check(request)
    present = _alive(session, request)
    if present:
        return _only_one(session, present)
    return _first_with_room(session, request, network)


def client_token(request: LaunchRequest, instance_type: str, zone: str) -> str:
    """64 characters, the most that EC2 takes."""
    parts = (request.tags.run_id, request.box, str(request.attempt), zone, instance_type)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def run_request(
    request: LaunchRequest, network: Network, instance_type: str, zone: str
) -> dict[str, Any]:
    """The parameters of RunInstances."""
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
        "TagSpecifications": request.tags.spec(
            "instance",
            "volume",
            "network-interface",
            role="box",
            name=named(request.tags.run_id, request.box),
            box=request.box,
            attempt=str(request.attempt),
            price_per_hour=str(request.price_by_type[instance_type]),
        ),
    }


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


def _check(request: LaunchRequest) -> None:
    size = len(request.user_data.encode())
    if size > USER_DATA_LIMIT:
        raise LaunchError(
            f"The user data of {request.box} has {size} bytes; EC2 takes {USER_DATA_LIMIT}",
            hint="Nothing was launched; shorten what the boot script carries.",
        )


def _alive(session: Session, request: LaunchRequest) -> list[BoxRecord]:
    found = find_boxes(session, request.tags.run_id, request.box)
    return [record for record in found if record.alive]


def _first_with_room(session: Session, request: LaunchRequest, network: Network) -> BoxRecord:
    full: list[str] = []
    over_quota: list[str] = []
    for instance_type in request.instance_types:
        for zone in network.subnets:
            try:
                made = _run(session, request, network, instance_type, zone)
            except Exception as error:
                if code(error) in CAPACITY:
                    full.append(f"{instance_type} in {zone}: {text(error)}")
                    continue
                if code(error) in QUOTA:
                    over_quota.append(f"{instance_type}: {text(error)}")
                    break
                raise
            return _only_one(session, [made, *_alive(session, request)])
    raise _no_room(request, full, over_quota)


def _run(
    session: Session, request: LaunchRequest, network: Network, instance_type: str, zone: str
) -> BoxRecord:
    ec2 = session.client("ec2", fast=True)
    parameters = run_request(request, network, instance_type, zone)
    try:
        answer = session.patience.retry(
            lambda: ec2.run_instances(**parameters),
            when=lambda error: is_unanswered(error) or _not_known_yet(error),
            timeout_s=PROPAGATION_S,
        )
    except Exception as error:
        if code(error) == "IdempotentParameterMismatch":
            return _launched_before(session, request)
        if code(error) == "IdempotentInstanceTerminated":
            raise _used_up(request) from error
        if not code(error) or is_unanswered(error) or code(error) in AUTH | CAPACITY | QUOTA:
            raise
        raise _refused(request, error) from error
    made = record_of(answer["Instances"][0])
    if not made.alive:
        raise _used_up(request)
    return made


def _launched_before(session: Session, request: LaunchRequest) -> BoxRecord:
    """The token was used with other parameters: an instance exists, and will be listed soon."""
    found = session.patience.until(
        lambda: _alive(session, request) or None, timeout_s=PROPAGATION_S
    )
    if not found:
        raise _used_up(request)
    return found[0]


def _only_one(session: Session, found: list[BoxRecord]) -> BoxRecord:
    """Two controllers may have launched the box in two zones: both keep the older instance."""
    by_id = {record.instance_id: record for record in found}
    oldest_first = sorted(by_id.values(), key=lambda box: (box.launched_at, box.instance_id))
    terminate(session, [box.instance_id for box in oldest_first[1:]])
    return oldest_first[0]


def _not_known_yet(error: Exception) -> bool:
    """Something that this run has just made; an unknown image is not among that."""
    if code(error) == "InvalidParameterValue":
        return "iam instance profile" in text(error).lower()
    return code(error) in (
        "InvalidGroup.NotFound",
        "InvalidKeyPair.NotFound",
        "InvalidSubnetID.NotFound",
        "NoSuchEntity",
    )


def _no_room(
    request: LaunchRequest, full: list[str], over_quota: list[str]
) -> CapacityError | QuotaError:
    tried = "\n".join(f"    {line}" for line in (*full, *over_quota))
    if over_quota and not full:
        return QuotaError(
            f"The account's quota has no room for {request.box}:\n{tried}",
            hint="Ask AWS for more vCPUs (Service Quotas, EC2), or end what else runs there.",
        )
    return CapacityError(
        f"No room for {request.box} now:\n{tried}",
        hint="Try later, add `fallbacks` to the box, or choose another region.",
    )


def _used_up(request: LaunchRequest) -> LaunchError:
    return LaunchError(
        f"Attempt {request.attempt} of {request.box} was launched before and has ended",
        hint="Launch it as the next attempt.",
    )


def _refused(request: LaunchRequest, error: Exception) -> LaunchError:
    return LaunchError(
        f"EC2 refuses to launch {request.box}: {code(error)}: {text(error)}",
        hint="Another zone can't cure this; `gpurun down` removes what was built so far.",
    )
