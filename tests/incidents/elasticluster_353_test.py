"""elasticluster#353, pulumi-cloud#222 and machulav/ec2-github-runner#141: disks stay behind.

There: the machine is ended, its volumes aren't deleted with it, nobody lists them, and each costs
on for months.
Here: every block device that is asked for is deleted with its instance and carries the run's tag.
A volume that somebody kept from going with it is found by that tag. A day after the teardown the
meter hasn't moved but for what lies in S3.
"""

from __future__ import annotations

from decimal import Decimal

from orchestrator.localcloud.meter import Kind
from tests.faults.cloud.client import Call
from tests.incidents.scene import Scene

BY_THE_HOUR = (Kind.COMPUTE, Kind.EBS, Kind.IPV4)


def by_the_hour_usd(scene: Scene) -> Decimal:
    lines = scene.world.cloud.bill_lines(scene.run_id)
    return sum((Decimal(each["usd"]) for each in lines if each["kind"] in BY_THE_HOUR), Decimal(0))


def asked_for(scene: Scene) -> Call:
    return next(call for call in scene.calls if call.operation == "run_instances")


def test_every_disk_goes_with_its_box_and_carries_the_run_s_tag(scene: Scene) -> None:
    scene.launched()
    asked = asked_for(scene).parameters
    assert asked["BlockDeviceMappings"]
    for device in asked["BlockDeviceMappings"]:
        assert device["Ebs"]["DeleteOnTermination"] is True
    tagged = {spec["ResourceType"]: spec["Tags"] for spec in asked["TagSpecifications"]}
    assert {"Key": "gpurun:run", "Value": scene.run_id} in tagged["volume"]
    (box,) = scene.instances()
    volumes = [item for item in scene.left() if item.startswith("volume")]
    assert len(volumes) == len(box.devices) == len(asked["BlockDeviceMappings"])


def test_a_day_after_the_teardown_nothing_has_been_billed_by_the_hour(scene: Scene) -> None:
    scene.launched()
    scene.wait(300)
    scene.controller().finish()
    before = by_the_hour_usd(scene)
    scene.wait(24 * 3600)
    assert by_the_hour_usd(scene) == before > 0
    assert scene.world.cloud.billable(scene.run_id) == []


def test_a_volume_that_somebody_kept_is_found_by_its_tag(scene: Scene) -> None:
    scene.launched()
    scene.wait(60)
    (box,) = scene.instances()
    person = scene.world.cloud.client("ec2", caller="person")
    person.create_volume(
        AvailabilityZone=box.zone,
        Size=100,
        TagSpecifications=[
            {
                "ResourceType": "volume",
                "Tags": [{"Key": "gpurun:run", "Value": scene.run_id}],
            }
        ],
    )
    scene.controller().finish()
    assert scene.left() == []
