"""bentoml/aws-ec2-deploy#15 and instructlab#2206: the root disk is too small.

There: the machine boots with the image's own disk size. The install fills it half-way, after the
machine has been paid for.
Here: the disk's size is the runbook's, never below the image's, and a plan whose disk hasn't room
for the image and for its jobs' wheels, packed and unpacked, is refused, with the size to set,
before anything is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.catalog import load_catalog
from orchestrator.errors import RunbookError
from orchestrator.pins import room_gb
from orchestrator.plan import Plan, make_plan
from orchestrator.runbook import load_runbook

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
RUNBOOK = """
name: disk
cap_usd: 40
regions: [us-east-1]
pins: PINS
boxes:
  l4: {instance: g6.4xlarge, hours: 1, disk_gb: DISK}
jobs:
  train: {box: l4, command: python3 train.py}
"""


@dataclass(frozen=True)
class Image:
    snapshot_gb: int
    id: str = "ami-0123456789abcdef0"


def planned(folder: Path, *, disk_gb: int, image_gb: int, pins: str = "unsloth") -> Plan:
    path = folder / "disk.yaml"
    path.write_text(RUNBOOK.replace("PINS", pins).replace("DISK", str(disk_gb)))
    runbook = load_runbook(path)
    return make_plan(runbook, now=NOW, catalog=load_catalog(), cloud="aws", ami=Image(image_gb))


def test_the_wheels_of_the_gpu_pins_are_counted_packed_and_unpacked() -> None:
    assert room_gb(["unsloth"]) == Decimal("12.8")
    assert room_gb(["unsloth", "unsloth", "cpu"]) == room_gb(["unsloth"]) + room_gb(["cpu"])


@pytest.mark.parametrize(
    "disk_gb, image_gb, pins, need",
    [(100, 95, "unsloth", 108), (107, 95, "unsloth", 108), (100, 120, "none", 120)],
)
def test_a_disk_without_room_for_image_and_wheels_is_refused_with_the_size_to_set(
    tmp_path: Path, disk_gb: int, image_gb: int, pins: str, need: int
) -> None:
    with pytest.raises(RunbookError, match=f"{disk_gb} GB is less than the {image_gb} GB") as told:
        planned(tmp_path, disk_gb=disk_gb, image_gb=image_gb, pins=pins)
    assert f"at least {need}," in told.value.hint
    assert planned(tmp_path, disk_gb=need, image_gb=image_gb, pins=pins)


def test_a_disk_of_the_images_own_size_cant_even_be_written_down(tmp_path: Path) -> None:
    with pytest.raises(RunbookError, match="disk_gb"):
        planned(tmp_path, disk_gb=75, image_gb=75)
