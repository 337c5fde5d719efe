"""Machine images and the public parameters that name them, the same in every region.

moto's own image list is left out: it costs seconds to load and knows none of these images.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from moto.core.utils import utcnow
from moto.ec2.models import EC2Backend
from moto.ec2.models.amis import Ami
from moto.ssm.models import Parameter, ParameterDict

from orchestrator.localcloud.rules.patches import Patches

_DEEP_LEARNING = "/aws/service/deeplearning/ami/x86_64"
_UBUNTU = "/aws/service/canonical/ubuntu/server"
# Parameter -> (image name, smallest root volume in GB).
IMAGES = {
    f"{_DEEP_LEARNING}/{kind}-ubuntu-{version}/latest/ami-id": (
        f"Deep Learning {title} (Ubuntu {version}) 20260717",
        75,
    )
    for kind, title in (
        ("base-oss-nvidia-driver-gpu", "Base OSS Nvidia Driver GPU AMI"),
        ("base-with-single-cuda", "Base AMI with Single CUDA"),
    )
    for version in ("22.04", "24.04")
} | {
    f"{_UBUNTU}/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id": (
        "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20261115",
        8,
    )
}


def install(patches: Patches) -> None:
    patches.replace(EC2Backend, "_load_amis", lambda _stock: _load_images)
    patches.replace(Ami, "block_device_mappings", lambda _stock: property(_mappings))
    patches.replace(ParameterDict, "_check_loading_status", _with_images)


def image_id(parameter: str, region: str) -> str:
    """An id of EC2's shape, the same every time for a parameter and region."""
    return "ami-" + hashlib.sha256(f"{region} {parameter}".encode()).hexdigest()[:17]


def _images(region: str) -> Iterator[tuple[str, str, str, int]]:
    for parameter, (name, root_gb) in IMAGES.items():
        yield parameter, image_id(parameter, region), name, root_gb


def _load_images(backend: Any) -> None:
    for _, ami_id, name, root_gb in _images(backend.region_name):
        ami = Ami(
            backend,
            ami_id,
            name=name,
            description=name,
            owner_id="898082745236",
            owner_alias="amazon",
            public=True,
            virtualization_type="hvm",
            architecture="x86_64",
            hypervisor="xen",
            root_device_type="ebs",
            root_device_name="/dev/sda1",
            region_name=backend.region_name + "a",
        )
        ami.ebs_snapshot.volume.size = root_gb
        backend.amis[ami_id] = ami


def _mappings(ami: Any) -> list[dict[str, Any]]:
    ebs = {
        "SnapshotId": ami.ebs_snapshot.id,
        "VolumeSize": ami.ebs_snapshot.volume.size,
        "DeleteOnTermination": True,
        "VolumeType": "gp3",
        "Encrypted": False,
    }
    return [{"DeviceName": ami.root_device_name, "Ebs": ebs}]


def _with_images(stock: Any) -> Any:
    def check_loading_status(self: Any, key: str) -> None:
        stock(self, key)
        ours = str(key or "").startswith((_DEEP_LEARNING, _UBUNTU))
        if ours and not hasattr(self, "strict_loaded"):
            self.strict_loaded = True
            for parameter, ami_id, _, _ in _images(self.region_name):
                dict.__setitem__(self, parameter, [_parameter(self, parameter, ami_id)])

    return check_loading_status


def _parameter(parameters: Any, name: str, value: str) -> Any:
    made: Any = Parameter  # abstract only on paper: moto instantiates it too
    return made(
        account_id=parameters.account_id,
        name=name,
        value=value,
        parameter_type="String",
        description=None,
        allowed_pattern=None,
        keyid=None,
        last_modified_date=utcnow(),
        version=1,
        data_type="aws:ec2:image",
    )
