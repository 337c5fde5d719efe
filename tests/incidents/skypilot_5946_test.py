"""skypilot-org/skypilot#5946: of many machines launched at once, some have no automatic stop.

There: setting the stop is a step after the launch, it fails for a few of many, and nobody is told.
Here: sixteen boxes in one run. The timer in the user data, what a power-off does, and the schedule
are read back from the cloud for each of them, not from what the controller believes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import datetime

import pytest

from tests.incidents.scene import ONE_BOX, Scene, opened

COUNT = 16
NAMES = [f"box{n}" for n in range(COUNT)]
HEAD = ONE_BOX.partition("boxes:")[0].replace("cap_usd: 5", "cap_usd: 50")
BOXES = "".join(
    f"  {name}: {{instance: g6.xlarge, hours: 12m, drain: 2m, cloud_margin: 1m}}\n"
    for name in NAMES
)
JOBS = "".join(f"  job-{name}: {{box: {name}, command: sim 6, hours: 5m}}\n" for name in NAMES)
MATRIX = f"{HEAD}boxes:\n{BOXES}jobs:\n{JOBS}"


@pytest.fixture
def many() -> Iterator[Scene]:
    with opened(MATRIX) as scene:
        scene.launched()
        yield scene


def test_each_box_of_many_powers_itself_off_for_good(many: Scene) -> None:
    ec2 = many.world.cloud.client("ec2")
    off_at = f"end_at={int(many.controller().record.plan.boxes[0].poweroff_at.timestamp())}"
    assert len(many.alive()) == COUNT
    for box in many.alive():
        asked = {"InstanceId": box.id}
        says = ec2.describe_instance_attribute(
            Attribute="instanceInitiatedShutdownBehavior", **asked
        )
        assert says["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"
        says = ec2.describe_instance_attribute(Attribute="userData", **asked)
        assert off_at in base64.b64decode(says["UserData"]["Value"]).decode()


def test_each_box_of_many_has_a_schedule_of_its_own_that_ends_it_in_time(many: Scene) -> None:
    scheduler = many.world.cloud.client("scheduler")
    plan = many.controller().record.plan
    found: dict[str, datetime] = {}
    for page in scheduler.get_paginator("list_schedules").paginate(GroupName="default"):
        for entry in page["Schedules"]:
            kill = scheduler.get_schedule(Name=entry["Name"], GroupName="default")
            asked = json.loads(kill["Target"]["Input"])
            targets = asked.get("InstanceIds") or asked["Targets"][0]["Values"]
            at = kill["ScheduleExpression"].removeprefix("at(").removesuffix(")")
            found |= {ended: datetime.fromisoformat(at + "+00:00") for ended in targets}
    assert len(targets) == 1
    names = {box.id: many.world.machines[box.id].name for box in many.alive()}
    assert found == {
        **{box_id: plan.box(name).cloud_at for box_id, name in names.items()},
        **{f"{many.run_id}/{name}": plan.box(name).cloud_at for name in names.values()},
    }
