"""skypilot-org/skypilot#4410: a cancel in the middle of a recovery leaves machines behind.

There: a job's machine is lost, its successor is being launched, and the person cancels. What was
half launched is forgotten, and its automatic stop was only going to be set afterwards.
Here: somebody ends the run at each call that changes anything, from the loss of a box until its
successor is armed. Nothing is left, and each machine was born with its power-off.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from orchestrator.errors import GpurunError
from tests.faults.cloud.client import Call
from tests.incidents.scene import ONE_BOX, Scene, opened

RETRIED = ONE_BOX.replace("retries: 0", "retries: 2")
READS = ("describe_", "get_", "list_", "head_")
WRITES = 21


def lose_the_box(scene: Scene) -> None:
    scene.launched()
    scene.wait(90)
    scene.world.cloud.lose(scene.alive()[0].id)
    scene.wait(120)
    scene.calls.clear()


def relaunch(scene: Scene) -> None:
    runner = scene.controller()
    runner.tender.tend(runner.instances())  # what the box said last may be new to this controller
    scene.wait(120)
    runner.tender.tend(runner.instances())


def cancel_at(scene: Scene, nth: int) -> None:
    """A `down` elsewhere, right before the nth call from now that changes anything."""
    left = [nth]

    def look(call: Call) -> None:
        left[0] -= not call.operation.startswith(READS)
        if left[0] == 0:
            scene.at_call = lambda _: None
            scene.controller().finish()

    scene.at_call = look


def test_an_undisturbed_relaunch_changes_things_so_often() -> None:
    with opened(RETRIED) as scene:
        lose_the_box(scene)
        relaunch(scene)
        assert [box.state for box in scene.instances()] == ["terminated", "pending"]
        assert sum(not call.operation.startswith(READS) for call in scene.calls) == WRITES


@pytest.mark.parametrize("nth", range(1, WRITES + 1))
def test_a_cancel_at_any_step_of_a_relaunch_leaves_nothing(nth: int) -> None:
    with opened(RETRIED) as scene:
        lose_the_box(scene)
        cancel_at(scene, nth)
        with suppress(GpurunError):  # the relaunch's ground is taken from under it
            relaunch(scene)
        assert scene.alive() == []
        scene.controller().finish()
        assert scene.left() == []
        for box in scene.instances():
            assert box.shutdown_behavior == "terminate"
            assert "end_at=" in box.user_data
