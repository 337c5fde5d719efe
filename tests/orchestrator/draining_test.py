"""Whoever ends a run lets its boxes save first, whatever clocks say and whoever else is at it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.errors import ApiError
from orchestrator.hearing import Hearing
from orchestrator.run import EventKind
from orchestrator.runner import Runner
from tests.orchestrator.bad_luck_test import clients, world
from tests.orchestrator.controllers import HAND, OFF, World

__all__ = ["clients", "world"]

NOW = datetime(2026, 12, 1, 20, 0, tzinfo=UTC)
SAVES = 3
"""Waits between the request to stop and the power-off."""


@dataclass
class Agent:
    """The box's agent, once per wait of whoever waits; it needs a while to save."""

    world: World
    clock_is_off_by: timedelta = timedelta()
    left: int = SAVES

    def __call__(self) -> None:
        base = f"runs/{self.world.record.run_id}/boxes/one"
        at = (self.world.clock.at + self.clock_is_off_by).timestamp()
        self.world.bucket.put(
            f"{base}/heartbeat.json", json.dumps({"phase": "running", "at": at}).encode()
        )
        if self.world.bucket.get(f"{base}/stop") is not None:
            self.left -= 1
        if self.left == 0 and self.world.alive():
            self.world.finishes()


def launched(world: World, off_by: timedelta = timedelta()) -> Runner:
    world.begin()
    runner = world.controller()
    runner.launch_all()
    world.clock.at_wait = Agent(world, off_by)
    world.clock.sleep(10)
    return runner


def is_saved(world: World) -> bool:
    return world.status().get("state") == "done" and world.instances()[0].reason == OFF


@pytest.mark.parametrize(
    "ours,its",
    [
        (timedelta(seconds=90), timedelta()),
        (-timedelta(seconds=90), timedelta()),
        (timedelta(), timedelta(hours=2)),
        (timedelta(), -timedelta(hours=2)),
    ],
    ids=["laptop ahead", "laptop behind", "box ahead", "box behind"],
)
def test_a_box_is_heard_whatever_either_clock_says(
    world: World, ours: timedelta, its: timedelta
) -> None:
    runner = launched(world, its)
    world.clock.wrong_by = ours
    runner.drain_boxes()
    runner.finish()
    assert is_saved(world)
    assert world.left() == []


def test_a_box_that_says_nothing_is_told_and_not_waited_for_long(world: World) -> None:
    runner = launched(world)
    world.clock.at_wait = lambda: None
    began = world.clock.at
    runner.drain_boxes()
    assert world.clock.at - began < timedelta(seconds=70)
    assert world.bucket.get(f"runs/{world.record.run_id}/boxes/one/stop") is not None


def test_a_box_that_never_said_anything_is_told_and_not_waited_for(world: World) -> None:
    world.begin()
    runner = world.controller()
    runner.launch_all()
    began = world.clock.at
    runner.drain_boxes()
    assert world.clock.at == began
    assert world.bucket.get(f"runs/{world.record.run_id}/boxes/one/stop") is not None


def test_who_resumes_a_run_that_drains_waits_as_well(world: World) -> None:
    """As after a `down` that was interrupted."""
    launched(world).log.append(EventKind.TEARING_DOWN, world.clock.at)
    world.controller().drive()
    assert is_saved(world)
    assert world.left() == []


@pytest.mark.parametrize("fails", [True, False], ids=["what it needs is gone", "it is done"])
def test_an_up_that_still_launches_while_a_run_drains_waits_as_well(
    world: World, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    launched(world)
    late = world.controller()

    def down_meanwhile() -> None:
        late.log.append(EventKind.TEARING_DOWN, world.clock.at)
        if fails:
            raise ApiError("the network is gone")

    monkeypatch.setattr(late, "_launch_missing", down_meanwhile)
    late.launch_all()
    assert is_saved(world)


def test_nobody_waits_for_a_run_that_is_ended_at_once(world: World) -> None:
    runner = launched(world)
    runner.log.append(EventKind.TEARING_DOWN, world.clock.at, reason="loss is NaN")
    world.controller().drive()
    assert world.instances()[0].reason != OFF
    assert world.status()["state"] == "cut"


def test_a_box_that_outlives_its_deadlines_while_another_drains_is_ended(world: World) -> None:
    world.begin(cap="20", two=True)
    runner = world.controller()
    runner.launch_all()
    seen: list[set[str]] = []
    world.clock.at = world.record.plan.box("one").cloud_at + timedelta(minutes=2)
    beat = {"phase": "running", "at": 0}

    def talks() -> None:
        beat["at"] = int(world.clock.at.timestamp())
        key = f"runs/{world.record.run_id}/boxes/two/heartbeat.json"
        world.bucket.put(key, json.dumps(beat).encode())
        seen.append({box.box for box in world.alive()})
        if seen[-1] == {"two"}:
            world.end(OFF)

    talks()
    world.clock.at_wait = talks
    runner.drain_boxes()
    assert seen[-1] == {"two"}
    assert [box.reason for box in world.instances() if box.box == "one"] == [HAND]


def test_a_heartbeat_is_news_when_it_changes() -> None:
    hearing, second = Hearing(), timedelta(seconds=1)
    first = {"phase": "running", "at": 5.0}
    assert hearing.hears("one", first, NOW)
    assert hearing.hears("one", first, NOW + 59 * second)
    assert not hearing.hears("one", first, NOW + 60 * second)
    assert hearing.hears("one", {**first, "at": 4.0}, NOW + 60 * second)
    assert not hearing.hears("two", None, NOW)
    assert not hearing.hears("one", {"phase": "off", "at": 9.0}, NOW)
