"""The accident that started the project: two runs trained for seven hours and kept nothing.

There: the boxes ran unattended. Their shutdown timer fired before anybody had copied the results,
which went with the disks; both runs were made again, and the money was gone and a little more.
Here: the same script, the same timer, and a controller that dies as soon as the box is armed. When
the box is gone, all that the job had made up to its end is in S3 under a committed manifest, byte
by byte; the spend is under the cap; and nobody had to come back for either.
"""

from __future__ import annotations

import json

import pytest

from orchestrator.box.pieces import pieces_of
from orchestrator.results import State
from tests.faults.life import BUCKET
from tests.faults.strikes import ControllerDied
from tests.faults.world import Enforcers
from tests.incidents.scene import FOR_EVER, MINUTE, Scene, opened

SEVEN_HOURS = (
    FOR_EVER.replace("hours: 12m, drain: 2m", "hours: 7h, drain: 10m")
    .replace("hours: 5m", "hours: 6h")
    .replace("cap_usd: 5", "cap_usd: 40")
    .replace("loss_bound: 60s", "loss_bound: 5m")
)


def unattended(scene: Scene) -> None:
    """Launched, armed, left alone until long after the box has gone."""
    scene.kill_after("create_schedule", 2)
    with pytest.raises(ControllerDied):
        scene.launched()
    scene.until(scene.plan.box("one").cloud_at + 10 * MINUTE)


def in_the_bucket(scene: Scene) -> set[str]:
    """What the last manifest names, each with its blobs."""
    objects = scene.world.cloud.objects(BUCKET)
    base = f"runs/{scene.run_id}/jobs/train"
    manifest = json.loads(objects[max(k for k in objects if k.startswith(f"{base}/manifests/"))])
    assert manifest["final"] is True
    files, there = manifest["files"], [k.rpartition("/")[2] for k in objects if "/blobs/" in k]
    return {n for n, e in files.items() if all(it.sha256 in there for it in pieces_of(e))}


@pytest.fixture(autouse=True)
def slow_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint each half hour."""
    monkeypatch.setattr("tests.faults.trainer.STEP_S", 600.0)


def test_seven_hours_alone_lose_nothing_and_cost_no_more_than_said() -> None:
    with opened(SEVEN_HOURS, Enforcers(controller=False, cloud=False)) as scene:
        unattended(scene)
        (box,) = scene.instances()
        assert (box.state, box.reason) == ("terminated", "Client.InstanceInitiatedShutdown")
        assert scene.world.cloud.bill(scene.run_id) <= scene.plan.worst_case_usd <= 40
        assert scene.pull().jobs["train"].state is State.PARTIAL  # cut by the deadline, as told
        made = {w.name: w.data for w in scene.world.written}
        assert len(made) > 20
        assert {name: scene.pulled("train", name) for name in made} == made
        assert in_the_bucket(scene) == made.keys()
