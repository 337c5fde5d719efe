"""dstackai/dstack#3031: ending what has ended is an error.

There: the machine has gone by itself. Terminating it raises, and the run hangs in its teardown.
Here: instances that have ended, that EC2 has forgotten, or that never were are ended again, alone
and together with one that lives. The one that lives ends, nothing raises, nothing else changes.
"""

from __future__ import annotations

import copy

import pytest

from orchestrator.aws.instances import terminate, wait_terminated
from tests.incidents.scene import Scene

UNKNOWN = "i-0123456789abcdef0"


def test_a_second_termination_changes_nothing(scene: Scene) -> None:
    session = scene.launched().session
    (box,) = scene.instances()
    terminate(session, [box.id])
    assert wait_terminated(session, [box.id], 300) == ()
    before = copy.copy(box)
    terminate(session, [box.id])
    terminate(session, [box.id, UNKNOWN])
    assert vars(box) == vars(before)


@pytest.mark.parametrize("place", [0, 1], ids=["first", "last"])
def test_an_unknown_instance_keeps_no_living_one_alive(scene: Scene, place: int) -> None:
    session = scene.launched().session
    ids = [scene.instances()[0].id]
    ids.insert(place, UNKNOWN)
    terminate(session, ids)
    assert scene.alive() == []


def test_a_second_down_is_a_no_op(scene: Scene) -> None:
    scene.launched().finish()
    scene.wait(2 * 3600)  # EC2 has forgotten the instance
    scene.calls.clear()
    before = scene.controller().log.read()
    scene.controller().finish()
    assert scene.controller().log.read() == before
    assert not [c for c in scene.calls if c.operation.startswith(("delete_", "terminate_"))]
