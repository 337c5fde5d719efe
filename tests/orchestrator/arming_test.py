"""A box has its own schedule before anything else can fail, and isn't lost for want of one."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from orchestrator.aws import boxes, schedules
from orchestrator.aws.boxes import BoxRecord
from orchestrator.aws.bucket import Bucket
from orchestrator.aws.tags import BOX, named
from orchestrator.errors import ApiError, QuotaError
from orchestrator.run import EventKind
from orchestrator.runner import Runner
from tests.orchestrator.bad_luck_test import clients, in_order, world
from tests.orchestrator.controllers import OFF, TAKEN, World

__all__ = ["clients", "world"]


def target(world: World) -> str:
    """What the box's own schedule ends."""
    scheduler = world.session.client("scheduler")
    found = scheduler.get_schedule(Name=named(world.record.run_id, "one"), GroupName="default")
    (instance_id,) = json.loads(found["Target"]["Input"])["InstanceIds"]
    return str(instance_id)


def refused(*_: object, **__: object) -> Any:
    raise ApiError("no answer")


def all_of_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("put", "get", "keys"):
        monkeypatch.setattr(Bucket, name, refused)


def listings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "find_boxes", refused)


@pytest.mark.parametrize("fails", [all_of_s3, listings])
def test_nothing_that_fails_after_a_launch_keeps_it_from_being_armed(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    fails: Callable[[pytest.MonkeyPatch], None],
) -> None:
    world.begin()
    real = boxes._run

    def run(*args: Any) -> BoxRecord:
        made = real(*args)
        fails(monkeypatch)
        return made

    monkeypatch.setattr(boxes, "_run", run)
    with pytest.raises(ApiError):
        world.controller().launch_all()
    monkeypatch.undo()
    (box,) = world.alive()
    assert target(world) == box.instance_id
    world.clock.at_wait = world.finishes
    world.controller().drive()
    assert len(world.instances()) == 1
    assert [e.instance_id for e in world.events(EventKind.ARMED)] == [box.instance_id]


@pytest.mark.parametrize("error", [ApiError("no answer"), QuotaError("too many schedules")])
def test_a_box_that_was_refused_its_schedule_once_is_launched_again_when_resumed(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuses(*_: object) -> None:
        raise error

    world.begin(retries=0)
    monkeypatch.setattr(schedules, "ensure_kill", refuses)
    with pytest.raises(ApiError):
        world.controller().launch_all()
    assert world.alive() == []
    assert world.events(EventKind.REFUSED) == []
    monkeypatch.undo()
    world.clock.at_wait = in_order(lambda: None, lambda: None, world.finishes)
    world.controller().drive()
    assert sorted(box.attempt for box in world.instances()) == [1, 2]
    assert world.status()["state"] == "done"
    assert world.money().keys() == {"one", "one#2"}


def test_a_box_that_is_refused_its_schedule_for_ever_is_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.begin(retries=0)
    monkeypatch.setattr(schedules, "ensure_kill", refused)
    with pytest.raises(ApiError):
        world.controller().launch_all()
    world.controller().drive()
    assert sorted(box.attempt for box in world.instances()) == [1, 2, 3, 4]
    assert world.status()["state"] == "cut"
    assert world.left() == []


def twins(world: World) -> tuple[Runner, Runner, BoxRecord, BoxRecord]:
    """Two controllers launched the box at once: the second doesn't know of it yet."""
    world.begin()
    one, two = world.controller(), world.controller()
    one.launch_all()
    (first,) = world.alive()
    world.clock.at += timedelta(seconds=5)
    return one, two, first, twin_of(world, two)


def twin_of(world: World, by: Runner, zone: str = "us-east-1b") -> BoxRecord:
    box = world.record.plan.box("one")
    ground = by.launcher.build([box])
    request = by.launcher._request(box, 1, ground)
    return boxes._run(world.session, request, ground.net, "g6.xlarge", zone)


def test_a_schedule_that_names_a_dead_twin_is_mended_though_the_first_try_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, first, second = twins(world)
    two.launcher.armer.note(second)
    assert target(world) == second.instance_id
    monkeypatch.setattr(schedules, "ensure_kill", refused)
    one.tender.tend(one.instances())
    assert [box.instance_id for box in world.alive()] == [first.instance_id]
    assert target(world) == second.instance_id
    monkeypatch.undo()
    world.controller().tender.tend(one.instances())
    assert target(world) == first.instance_id


def test_a_schedule_that_a_late_controller_makes_for_a_dead_twin_is_mended(world: World) -> None:
    one, two, first, second = twins(world)
    one.tender.tend(one.instances())
    assert [box.instance_id for box in world.alive()] == [first.instance_id]
    two.launcher.armer.note(second)  # by its record it is still pending
    assert target(world) == second.instance_id
    one.tender.tend(one.instances())
    assert target(world) == first.instance_id


def test_the_older_of_two_launches_is_kept_and_armed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.begin()
    one, two = world.controller(), world.controller()
    one.launch_all()
    (first,) = world.alive()
    world.clock.at += timedelta(seconds=5)
    real, unseen = boxes._alive, [True]
    monkeypatch.setattr(boxes, "_alive", lambda *a: [] if unseen and unseen.pop() else real(*a))
    monkeypatch.setattr(boxes, "_places", lambda *_: [("g6.xlarge", "us-east-1b")])
    box = world.record.plan.box("one")
    two.launcher.launch(box, 1, two.launcher.build([box]))
    assert len(world.instances()) == 2
    assert [box.instance_id for box in world.alive()] == [first.instance_id]
    assert target(world) == first.instance_id


@pytest.mark.parametrize("renamed", ["", "somebody-s"])
def test_a_box_whose_tag_a_person_changed_is_still_that_box(world: World, renamed: str) -> None:
    world.begin()

    def rename() -> None:
        (box,) = world.alive()
        ec2 = world.session.client("ec2")
        ec2.create_tags(Resources=[box.instance_id], Tags=[{"Key": BOX, "Value": renamed}])
        if not renamed:
            ec2.delete_tags(Resources=[box.instance_id], Tags=[{"Key": BOX}])
        scheduler = world.session.client("scheduler")
        scheduler.delete_schedule(Name=named(world.record.run_id, "one"), GroupName="default")

    seen: list[str] = []
    waits = [*[lambda: None] * 9, lambda: seen.append(target(world)), world.finishes]
    world.clock.at_wait = in_order(rename, *waits)
    runner = world.controller()
    runner.poll_s = 60
    runner.drive()
    (box,) = world.instances()
    assert (seen, box.reason) == ([box.instance_id], OFF)
    assert world.money().keys() == {"one"}
    assert world.left() == []


def test_an_attempt_is_settled_with_its_twin_that_nobody_had_noted(world: World) -> None:
    world.begin()
    one = world.controller()
    one.launch_all()
    world.forget()
    twin_of(world, one)
    world.clock.at += timedelta(minutes=30)
    world.end(TAKEN)
    one.books.note_ended(world.instances(), world.clock.at, over=True)
    lives = one.books.lives(world.instances())
    assert len(lives) == 2
    cost = sum(one.books._usd(life, world.clock.at) for life in lives)
    assert abs(one.books.ledger().settled["one"] - cost) < cost / 1000
