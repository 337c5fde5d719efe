"""skypilot-org/skypilot#10123: a status that couldn't be read in a minute ended a healthy job.

There: the controller can't reach a machine over SSH for a minute, takes the job for dead, destroys
it and begins again on another machine.
Here: for ten minutes nothing gets through to a box, and EC2 doesn't list it either, while its
heartbeats in S3 go on. The box is left alone, no second one is launched, and it finishes its job.
"""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator import reach
from orchestrator.aws import instances
from orchestrator.errors import RemoteError
from orchestrator.recovery import VISIBLE_AFTER
from orchestrator.snapshot import Stage
from tests.incidents.scene import MINUTE, ONE_BOX, opened

LONG_JOB = (
    ONE_BOX.replace("sim 6", "sim 36")
    .replace("hours: 12m", "hours: 30m")
    .replace("hours: 5m, retries: 0", "hours: 25m, retries: 3")
)
BLIND_S = 600


def test_a_box_that_only_its_heartbeats_tell_of_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = instances._described

    def unreachable(*_: object) -> None:
        raise RemoteError("no way in")

    monkeypatch.setattr(reach, "remote_of", unreachable)
    with opened(LONG_JOB) as scene:
        runner = scene.launched()
        runner.poll_s = 60
        (box,) = scene.instances()
        scene.wait(60)
        blind_until = scene.world.time.now() + BLIND_S * MINUTE / 60

        def described(*asked: Any) -> Any:
            return [] if scene.world.time.now() < blind_until else real(*asked)

        monkeypatch.setattr(instances, "_described", described)
        assert VISIBLE_AFTER * 2 <= BLIND_S * MINUTE / 60  # EC2's own delay explains no such time
        assert runner.drive().stage is Stage.CLEAN
        assert scene.instances() == [box]
        assert box.reason == "Client.InstanceInitiatedShutdown"
        assert [job.state for job in runner.look().jobs] == ["done"]
