"""iterative/cml#1006: the disk is full, the runner dies, and nothing shuts the machine down.

There: what should have ended the machine was a program on it, which a full disk took along.
Here: the disk fills up under a job that would go on for ever; then also the agent dies. Neither a
controller nor the cloud helps. The box still powers off in time, and what had been made up to
then, the log's end too, is in the bucket.
"""

from __future__ import annotations

import pytest

from orchestrator.box.agent import Agent
from tests.faults.world import Enforcers
from tests.incidents.scene import ALIVE, FOR_EVER, MINUTE, Scene, opened

BOX_ALONE = Enforcers(controller=False, cloud=False)
FULL_AFTER_S = 200


def fill_the_disk(scene: Scene) -> bytes:
    """What the log is by then."""
    scene.launched()
    scene.wait(FULL_AFTER_S)
    scene.world.box("one").disk_full = True
    logs = [w.data for w in scene.world.written if w.name == "log.txt"]
    return logs[-1]


def test_a_full_disk_ends_the_job_and_the_box_and_loses_nothing_of_before() -> None:
    with opened(FOR_EVER, BOX_ALONE) as scene:
        log = fill_the_disk(scene)
        scene.until(scene.plan.box("one").poweroff_at + MINUTE)
        assert scene.alive() == []
        scene.pull()
        assert scene.pulled("train", "log.txt") == log
        assert scene.pulled("train", "out/checkpoint-6/adapter") == b"weights train 6"


def test_a_full_disk_that_took_the_agent_along_does_not_keep_the_timer_from_its_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with opened(FOR_EVER, BOX_ALONE) as scene:
        fill_the_disk(scene)
        monkeypatch.setattr(Agent, "tick", lambda _: True)
        (box,) = scene.instances()
        scene.until(scene.plan.box("one").poweroff_at - MINUTE / 2)
        assert box.state in ALIVE
        scene.until(scene.plan.box("one").poweroff_at + MINUTE)
        assert box.state == "terminated"
        assert scene.world.cloud.bill(scene.run_id) <= scene.plan.worst_case_usd
