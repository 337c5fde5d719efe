"""redhat-developer/mapt#325 and refinery-platform#3104: a machine that boots with a wrong clock.

There: a fresh machine's clock is far off. What is planned by its time comes hours late, or never.
Here: a box boots two hours behind or ahead, or its clock jumps in mid-job. A clock that is behind,
or set back, never lengthens a life by a second, as uptime counts beside it; one that is ahead
shortens it, in order: saved first, then off.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.faults.cloud import Instance
from tests.incidents.scene import ALIVE, FOR_EVER, MINUTE, Scene, opened

Wrong = Callable[[Scene, float], Instance]
HOURS_S = 7200.0
TICK = timedelta(seconds=15)


def boots_wrong(scene: Scene, skew_s: float) -> Instance:
    """Launched, with that clock from its first second on."""
    launched = scene.world.cloud.on_launch
    assert launched is not None

    def on_launch(instance: Instance) -> None:
        launched(instance)
        scene.world.machines[instance.id].skew_s = skew_s

    scene.world.cloud.on_launch = on_launch
    scene.launched()
    (box,) = scene.instances()
    return box


def jumps(scene: Scene, skew_s: float) -> Instance:
    """Launched right, and set wrong three minutes later."""
    scene.launched()
    scene.wait(180)
    scene.world.box("one").skew_s = skew_s
    (box,) = scene.instances()
    return box


def all_came_home(scene: Scene) -> None:
    scene.pull()
    newest = {each.name: each for each in scene.world.written}
    for each in newest.values():
        assert scene.pulled("train", each.name) == each.data, each.name


@pytest.mark.parametrize("wrong", [boots_wrong, jumps])
def test_a_clock_two_hours_behind_lengthens_no_life(
    wrong: Wrong,
) -> None:
    with opened(FOR_EVER) as scene:
        box = wrong(scene, -HOURS_S)
        plan = scene.plan.box("one")
        scene.until(plan.drain_at - MINUTE)
        assert box.state in ALIVE
        scene.until(plan.poweroff_at + 2 * MINUTE)
        assert box.ended_at is not None
        assert plan.drain_at < box.ended_at <= plan.poweroff_at + TICK
        assert box.reason == "Client.InstanceInitiatedShutdown"
        all_came_home(scene)


@pytest.mark.parametrize("wrong", [boots_wrong, jumps])
def test_a_clock_two_hours_ahead_shortens_it(wrong: Wrong) -> None:
    with opened(FOR_EVER) as scene:
        box = wrong(scene, HOURS_S)
        scene.wait(5 * 60)
        assert box.state not in ALIVE
        assert scene.world.cloud.bill(scene.run_id) <= scene.plan.worst_case_usd
