"""skypilot-org/skypilot#10370 and PR#10476: nothing bounds how long a job may run.

There: a job that never returns keeps its machine for as long as nobody looks.
Here: a trainer that sleeps for ever and hears no signal. Its box is gone at its deadline, to the
minute: by the agent; by the timer when the agent hangs too; by the cloud when nothing on the box
runs any more. No controller is there.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from orchestrator.box.agent import Agent
from tests.faults.trainer import Trainer
from tests.incidents.scene import ALIVE, MINUTE, Scene


@pytest.fixture(autouse=True)
def for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """It neither works nor listens; SIGKILL alone ends it."""
    monkeypatch.setattr(Trainer, "advance", lambda _: None)


def ended_at(scene: Scene) -> datetime:
    """By the cloud's account of its instance."""
    (box,) = scene.instances()
    assert box.state not in ALIVE
    assert box.ended_at is not None
    return box.ended_at


def test_the_agent_kills_a_deaf_trainer_and_the_box_is_off_before_its_timer(scene: Scene) -> None:
    box = scene.launched().record.plan.box("one")
    scene.until(box.cloud_at + 10 * MINUTE)
    assert box.drain_at < ended_at(scene) <= box.poweroff_at


def test_with_a_hanging_agent_the_timer_ends_the_box_to_the_minute(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = scene.launched().record.plan.box("one")
    scene.wait(120)
    monkeypatch.setattr(Agent, "tick", lambda _: True)
    scene.until(box.cloud_at + 10 * MINUTE)
    assert abs(ended_at(scene) - box.poweroff_at) <= timedelta(seconds=60)


def test_on_a_box_that_is_dead_all_over_the_cloud_ends_it_to_the_minute(scene: Scene) -> None:
    box = scene.launched().record.plan.box("one")
    scene.wait(120)
    scene.world.box("one").wedged = True
    scene.until(box.cloud_at + 10 * MINUTE)
    assert abs(ended_at(scene) - box.cloud_at) <= timedelta(seconds=60)
