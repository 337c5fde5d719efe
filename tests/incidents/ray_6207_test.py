"""ray-project/ray#6207: `down` stops machines instead of ending them.

There: the command that takes a cluster down leaves its machines stopped, to be used again; their
volumes cost on.
Here: after `down` the cloud calls every instance terminated and has no volume of the run; also of
a box that somebody had stopped by hand before, and of one that is protected from termination.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.run import EventKind
from tests.faults.cloud.instance import Instance
from tests.incidents.scene import Scene


def stop_by_hand(scene: Scene, box: Instance) -> None:
    box.shutdown_behavior = "stop"
    scene.world.cloud.power_off(box.id)
    scene.wait(60)
    assert box.state == "stopped"


def protect(_: Scene, box: Instance) -> None:
    box.protected = True


def leave_alone(_: Scene, box: Instance) -> None:
    assert box.state == "running"


@pytest.mark.parametrize("meanwhile", [leave_alone, stop_by_hand, protect])
def test_after_down_every_instance_is_terminated_and_its_volume_is_gone(
    scene: Scene, meanwhile: Callable[[Scene, Instance], None]
) -> None:
    scene.launched()
    scene.wait(90)
    (box,) = scene.instances()
    meanwhile(scene, box)
    assert any(item.startswith("volume") for item in scene.world.cloud.billable(scene.run_id))
    scene.controller().finish()
    assert box.state == "terminated"
    assert scene.world.cloud.billable(scene.run_id) == []
    assert scene.left() == []
    assert len(scene.events(EventKind.CLEAN)) == 1
