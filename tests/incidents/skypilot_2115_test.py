"""skypilot-org/skypilot#2115: the machine outlives the client that had promised to end it.

There: a run is started from a CI job, whose client and everything it kept is gone minutes later.
The automatic shutdown never comes.
Here: the controller dies for good at each step after the first RunInstances. With a trainer that
would go on for ever, each box ends by itself in time and what was spent stays under the cap; also
when the box's own timer does nothing and the cloud is alone.
"""

from __future__ import annotations

import pytest

from tests.faults.strikes import ControllerDied
from tests.faults.world import Enforcers
from tests.incidents.scene import FOR_EVER, MINUTE, opened


@pytest.mark.parametrize("died_after, nth", [("run_instances", 1), ("create_schedule", 2)])
def test_a_box_whose_controller_died_for_good_ends_within_the_cap(
    died_after: str, nth: int
) -> None:
    with opened(FOR_EVER, Enforcers(controller=False, cloud=False)) as scene:
        scene.kill_after(died_after, nth)
        with pytest.raises(ControllerDied):
            scene.launched()
        assert len(scene.alive()) == 1
        scene.until(scene.plan.box("one").poweroff_at + 2 * MINUTE)
        assert scene.alive() == []
        scene.wait(24 * 3600)
        assert scene.world.cloud.billable(scene.run_id) == []
        assert 0 < scene.world.cloud.bill(scene.run_id) <= scene.plan.worst_case_usd


@pytest.mark.parametrize("died_after, nth", [("run_instances", 1), ("create_schedule", 2)])
def test_the_cloud_alone_ends_a_box_whose_own_timer_does_nothing(
    died_after: str, nth: int
) -> None:
    with opened(FOR_EVER, Enforcers(controller=False, box=False)) as scene:
        scene.kill_after(died_after, nth)
        with pytest.raises(ControllerDied):
            scene.launched()
        scene.until(scene.plan.box("one").cloud_at + 2 * MINUTE)
        assert scene.alive() == []
        assert scene.world.cloud.bill(scene.run_id) <= scene.plan.worst_case_usd
