"""dstackai/dstack#2068: Ctrl+C while a machine is being provisioned leaves one behind.

There: the person interrupts the command, and a machine that counts as busy stays.
Here: Ctrl+C before and after each call of a launch. After the next
command, `gpurun down`, nothing is left.
"""

from __future__ import annotations

import pytest

from tests.faults.cloud.client import Call
from tests.faults.fault import CONTROLLER
from tests.incidents.scene import Scene, opened

SHARDS = 4


def launch_until(scene: Scene, nth: int, *, after: bool) -> bool:
    """Whether the launch had an nth call, at which it was interrupted."""
    left = [nth]

    def strike(call: Call) -> None:
        if call.caller == CONTROLLER:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt

    runner = scene.begin()
    if after:
        scene.world.cloud.after = strike
    else:
        scene.at_call = strike
    try:
        runner.launch_all()
    except KeyboardInterrupt:
        return True
    finally:
        scene.world.cloud.after, scene.at_call = None, lambda _: None
    return False


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_ctrl_c_at_any_call_of_a_launch_leaves_nothing_after_down(shard: int, after: bool) -> None:
    nth, interrupted = shard + 1, True
    while interrupted:
        with opened() as scene:
            interrupted = launch_until(scene, nth, after=after)
            scene.controller().finish()
            assert scene.alive() == [], f"call {nth}"
            assert scene.left() == [], f"call {nth}"
        nth += SHARDS
    assert nth > 60  # a launch has so many calls
