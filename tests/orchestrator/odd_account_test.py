"""An account in which other people, and EC2 itself, do odd things to a run's instances."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from moto.ec2.models import ec2_backends

from orchestrator.aws import boxes
from orchestrator.aws.tags import ATTEMPT, BOX, PRICE, RUN
from orchestrator.run import EventKind
from orchestrator.snapshot import Stage

from .bad_luck_test import clients, drive, kill_targets, world
from .controllers import ACCOUNT, REGION, TAKEN, World

__all__ = ["clients", "world"]


def taken_without_a_time(world: World) -> None:
    """EC2 dates only ends that somebody asked for."""
    (box,) = world.alive()
    world.end(TAKEN)
    ec2_backends[ACCOUNT][REGION].get_instance(box.instance_id)._reason = ""


def clone(world: World, **tags: str) -> str:
    """ "Launch more like this": a person's instance, with the tags of ours."""
    ec2: Any = world.session.client("ec2")
    (box,) = world.alive()
    found = ec2.describe_instances(InstanceIds=[box.instance_id])["Reservations"][0]["Instances"]
    made = ec2.run_instances(
        ImageId=found[0]["ImageId"],
        InstanceType="g6.xlarge",
        SubnetId=found[0]["SubnetId"],
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}
        ],
    )
    return str(made["Instances"][0]["InstanceId"])


def test_a_box_whose_end_nobody_dated_is_not_billed_beyond_what_it_could_cost(
    world: World,
) -> None:
    world.begin(spot=True)

    def closed_laptop() -> None:
        world.clock.at = world.record.plan.box("one").cloud_at - timedelta(minutes=5)
        taken_without_a_time(world)
        world.clock.at += timedelta(minutes=50)

    drive(world, closed_laptop)
    assert world.money()["one"] <= world.record.plan.box("one").worst_case_usd


def test_an_instance_that_only_carries_the_run_s_tag_does_not_stop_its_controller(
    world: World,
) -> None:
    world.begin()
    runner = drive(world, lambda: None, lambda: None, _stray(world), *[world.finishes] * 2)
    assert runner.look().stage is Stage.CLEAN
    assert world.alive() == []
    assert world.money().keys() == {"one"}


def _stray(world: World) -> Any:
    return lambda: clone(world, **{RUN: world.record.run_id, "Name": "a colleague's"})


def test_a_laptop_that_slept_while_the_network_was_built_launches_nothing_late(
    world: World,
) -> None:
    world.begin()
    runner = world.controller()

    def sleep(words: str) -> None:
        if words.startswith("making the role"):
            world.clock.at += timedelta(days=2)

    runner.on_step = sleep
    runner.drive()
    assert world.instances() == []
    assert "never launched" in world.status()["reason"]
    assert world.money() == {"one": 0}


def test_tags_that_somebody_changed_keep_nothing_alive(world: World) -> None:
    world.begin()
    runner = world.controller()
    runner.launch_all()
    (box,) = world.alive()
    tags = [{"Key": ATTEMPT, "Value": "first"}, {"Key": PRICE, "Value": "dear"}]
    world.session.client("ec2").create_tags(Resources=[box.instance_id], Tags=tags)  # type: ignore[arg-type]
    world.controller().finish()
    assert world.alive() == []
    assert world.left() == []


def test_of_two_twins_the_one_that_stays_keeps_the_cloud_s_switch(world: World) -> None:
    """Another controller, to which EC2 didn't show the first yet, launched and armed a second."""
    world.begin()
    runner = world.controller()
    runner.launch_all()
    (first,) = world.alive()
    world.clock.at += timedelta(seconds=5)
    second = clone(world, **{RUN: world.record.run_id, BOX: "one", ATTEMPT: "1"})
    (twin,) = [box for box in world.alive() if box.instance_id == second]
    guard = f"{world.record.run_id}/one"  # it ends what carries this tag
    world.controller().launcher.armer.note(twin)
    assert kill_targets(world) == [second, guard]
    runner.tender.tend(boxes.find_boxes(world.session, world.record.run_id))
    assert [box.instance_id for box in world.alive()] == [first.instance_id]
    assert kill_targets(world) == [first.instance_id, guard]


def test_a_box_that_ec2_has_forgotten_is_billed_to_the_last_moment_its_switch_may_take(
    world: World,
) -> None:
    world.begin()

    def two_days() -> None:
        world.forget()
        world.clock.at += timedelta(days=2)

    drive(world, two_days)
    (end,) = world.events(EventKind.ENDED)
    cloud_at = world.record.plan.box("one").cloud_at
    assert end.ended_at is not None
    assert end.ended_at >= cloud_at + timedelta(minutes=1)  # the scheduler's precision
    assert world.money()["one"] <= world.record.plan.box("one").worst_case_usd
