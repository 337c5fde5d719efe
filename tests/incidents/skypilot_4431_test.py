"""skypilot-org/skypilot#4431: a machine that nobody knows of any more.

There: the launching process is killed while the cloud makes the machine. The next status refresh
lists nothing yet, takes that for "it is gone", and drops the only record of it.
Here: the controller dies between the request and its answer, and EC2 shows nothing new for five
seconds. Whoever comes next, at once or after the expiry, finds that very instance.
"""

from __future__ import annotations

import pytest

from orchestrator.run import EventKind
from tests.faults.strikes import ControllerDied
from tests.faults.world import Enforcers
from tests.incidents.scene import MINUTE, ONE_BOX, Scene, opened

SHOWN_AFTER_S = 5.0


def begin_and_die(scene: Scene) -> None:
    """Nothing of it is in the run's log but that it is to be tried."""
    scene.world.rules.invisible_s = SHOWN_AFTER_S
    scene.kill_after("run_instances")
    with pytest.raises(ControllerDied):
        scene.launched()
    assert scene.events(EventKind.LAUNCHED) == []


@pytest.mark.parametrize("comes_after_s", [0, 60], ids=["before EC2 shows it", "later"])
def test_who_resumes_takes_over_the_instance_whose_answer_never_came(
    scene: Scene, comes_after_s: int
) -> None:
    begin_and_die(scene)
    scene.wait(comes_after_s)
    scene.controller().launch_all()
    (only,) = scene.instances()
    assert [event.instance_id for event in scene.events(EventKind.LAUNCHED)] == [only.id]
    assert [event.instance_id for event in scene.events(EventKind.ARMED)] == [only.id]


def test_when_nobody_resumes_a_sweep_finds_it_by_its_tag() -> None:
    with opened(ONE_BOX, Enforcers(box=False, cloud=False)) as scene:
        begin_and_die(scene)
        scene.until(scene.controller().record.expires_at + MINUTE)
        assert len(scene.alive()) == 1
        assert scene.sweep().ended == (scene.run_id,)
        assert scene.left() == []
