"""What AWS itself says of things that were asked for: read back, never assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.aws.refusals import boundary, code
from orchestrator.aws.tags import as_map, of_run
from orchestrator.aws.waits import PROPAGATION_S
from orchestrator.errors import ApiError

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

    from orchestrator.aws.session import Session

_NOBODY = "000000000000"
"""An account number that owns no bucket of ours."""


@dataclass(frozen=True)
class Launched:
    """One instance with its first volume and network interface, as EC2 lists them."""

    shutdown: str
    """`terminate` or `stop`: what a power-off from inside does."""
    imds: str
    """`required` where metadata answers only to tokens."""
    volume_id: str
    volume_encrypted: bool
    volume_goes: bool
    """DeleteOnTermination of the volume; the next one, of the interface."""
    interface_goes: bool
    tags: Mapping[str, Mapping[str, str]]
    """By kind: instance, volume, network-interface."""


@boundary()
def launched(session: Session, instance_id: str) -> Launched:
    """Read an instance back.

    Raises:
        ApiError: it doesn't show its volume and interface within a minute.
    """
    found = session.patience.until(
        lambda: _with_parts(session, instance_id), timeout_s=PROPAGATION_S
    )
    if found is None:
        raise ApiError(f"EC2 doesn't show the volume of {instance_id}")
    ec2 = session.client("ec2")
    ebs, interface = found["BlockDeviceMappings"][0]["Ebs"], found["NetworkInterfaces"][0]
    volume = ec2.describe_volumes(VolumeIds=[ebs["VolumeId"]])["Volumes"][0]
    eni = ec2.describe_network_interfaces(NetworkInterfaceIds=[interface["NetworkInterfaceId"]])
    return Launched(
        shutdown=_shutdown(session, instance_id),
        imds=found.get("MetadataOptions", {}).get("HttpTokens", ""),
        volume_id=ebs["VolumeId"],
        volume_encrypted=volume["Encrypted"],
        volume_goes=ebs.get("DeleteOnTermination", False),
        interface_goes=interface.get("Attachment", {}).get("DeleteOnTermination", False),
        tags={
            "instance": as_map(found.get("Tags", [])),
            "volume": as_map(volume.get("Tags", [])),
            "network-interface": as_map(eni["NetworkInterfaces"][0].get("TagSet", [])),
        },
    )


@boundary()
def volumes_of(session: Session, run_id: str) -> list[str]:
    """Volumes with the run's tag, in whatever state."""
    pages = (
        session.client("ec2").get_paginator("describe_volumes").paginate(Filters=of_run(run_id))
    )
    return [volume["VolumeId"] for page in pages for volume in page["Volumes"]]


@boundary()
def is_private(session: Session, bucket: str) -> bool:
    """Whether all four blocks of public access are on."""
    answer = session.client("s3").get_public_access_block(
        Bucket=bucket, ExpectedBucketOwner=session.account
    )
    block: Mapping[str, Any] = answer["PublicAccessBlockConfiguration"]
    names = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
    return all(block.get(name) for name in names)


@boundary()
def answer_to_another_owner(session: Session, bucket: str) -> str:
    """S3's word for a caller who expects the bucket to be somebody else's; `ok` if it answers."""
    try:
        session.client("s3").list_objects_v2(Bucket=bucket, MaxKeys=1, ExpectedBucketOwner=_NOBODY)
    except Exception as error:
        if not code(error):
            raise
        return code(error)
    return "ok"


def _with_parts(session: Session, instance_id: str) -> InstanceTypeDef | None:
    pages = session.client("ec2").describe_instances(
        Filters=[{"Name": "instance-id", "Values": [instance_id]}]
    )
    for reservation in pages["Reservations"]:
        for instance in reservation["Instances"]:
            if instance.get("BlockDeviceMappings") and instance.get("NetworkInterfaces"):
                return instance
    return None


def _shutdown(session: Session, instance_id: str) -> str:
    answer = session.client("ec2").describe_instance_attribute(
        InstanceId=instance_id, Attribute="instanceInitiatedShutdownBehavior"
    )
    return answer["InstanceInitiatedShutdownBehavior"].get("Value", "")
