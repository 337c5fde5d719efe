"""dstackai/dstack#632: the run's time was up and the run ended, but not the machine.

There: the longest duration applies to the run as the server sees it; the machine stays.
Here: the agent ends its jobs at the drain and calls the power-off, which does nothing. What counts
is the cloud's state: instance and volume are gone at the cloud's deadline, and until EC2 says so
no log says that the box has ended.
"""

from __future__ import annotations

from datetime import timedelta

from orchestrator.run import EventKind
from tests.faults.world import Enforcers
from tests.incidents.scene import FOR_EVER, MINUTE, opened


def test_a_run_that_ended_on_a_box_that_stays_is_ended_by_the_cloud() -> None:
    with opened(FOR_EVER, Enforcers(box=False)) as scene:
        runner = scene.launched()
        box = runner.record.plan.box("one")
        scene.until(box.poweroff_at)
        (instance,) = scene.instances()
        assert [job.state for job in runner.look().jobs] == ["cut"]
        assert instance.state == "running"
        runner.tender.tend(runner.instances())
        assert scene.events(EventKind.ENDED) == []
        scene.until(box.cloud_at + 2 * MINUTE)
        assert instance.ended_at is not None
        assert abs(instance.ended_at - box.cloud_at) <= timedelta(seconds=60)
        assert scene.world.cloud.billable(scene.run_id) == []
        runner.tender.tend(runner.instances())
        assert [e.ended_at for e in scene.events(EventKind.ENDED)] == [
            instance.ended_at.replace(microsecond=0)
        ]
