"""From the name of a public SSM parameter to the AMI that it means today."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.aws.refusals import boundary, is_missing
from orchestrator.aws.tags import where
from orchestrator.errors import CatalogError

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import ImageTypeDef

    from orchestrator.aws.session import Session


@dataclass(frozen=True)
class Ami:
    """What a plan records of an image, so that every box of a run starts from the same one."""

    id: str
    name: str
    root_device: str
    snapshot_gb: int
    """The smallest root volume that EC2 accepts for it."""


@boundary()
def resolve_ami(session: Session, parameter: str) -> Ami:
    """Ask SSM for the id and EC2 for the root device.

    Raises:
        CatalogError: the region has no such parameter, or the image isn't available.
    """
    image_id = _parameter(session, parameter)
    images = session.client("ec2").describe_images(Filters=[where("image-id", image_id)])["Images"]
    if not images or images[0].get("State", "available") != "available":
        raise CatalogError(
            f"{parameter} names {image_id}, which isn't available in {session.region}",
            hint="Give the runbook another `image`.",
        )
    return _ami(images[0])


def _parameter(session: Session, name: str) -> str:
    try:
        return session.client("ssm").get_parameter(Name=name)["Parameter"]["Value"]
    except Exception as error:
        if not is_missing(error):
            raise
        raise CatalogError(
            f"{session.region} has no SSM parameter {name}",
            hint="Give the runbook another `image`, or another region.",
        ) from error


def _ami(image: ImageTypeDef) -> Ami:
    root = image["RootDeviceName"]
    sizes = {
        device["DeviceName"]: device.get("Ebs", {}).get("VolumeSize", 0)
        for device in image.get("BlockDeviceMappings", [])
        if "DeviceName" in device
    }
    return Ami(image["ImageId"], image.get("Name", ""), root, sizes.get(root, 0))
