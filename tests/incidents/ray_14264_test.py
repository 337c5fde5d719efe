"""ray-project/ray#14264: one bad machine makes the autoscaler end all of them.

There: a single node that fails throws off the bookkeeping, and the healthy ones are ended with it.
Here: one of four boxes of a matrix dies. The other three are
the same instances to their end, finish their jobs, and end by themselves; the lost one alone gets
a successor.
"""

from __future__ import annotations

from orchestrator.snapshot import Stage
from tests.incidents.scene import ONE_BOX, opened

NAMES = ("a", "b", "c", "d")
BOX = "{instance: g6.xlarge, hours: 12m, drain: 2m, cloud_margin: 1m}"
MATRIX = (
    ONE_BOX.partition("boxes:")[0]
    + "boxes:\n"
    + "".join(f"  {name}: {BOX}\n" for name in NAMES)
    + "jobs:\n"
    + "".join(f"  job-{n}: {{box: {n}, command: sim 12, hours: 5m}}\n" for n in NAMES)
)


def test_when_one_of_four_boxes_dies_the_others_stay_as_they_are() -> None:
    with opened(MATRIX) as scene:
        runner = scene.launched()
        scene.wait(120)
        (lost,) = scene.instances("b")
        healthy = [box for box in scene.instances() if box is not lost]
        scene.world.cloud.lose(lost.id)
        seen = runner.drive()
        assert seen.stage is Stage.CLEAN
        assert {job.name: job.state for job in seen.jobs} == {f"job-{n}": "done" for n in NAMES}
        assert [box for box in scene.instances() if box in healthy] == healthy
        assert {box.reason for box in healthy} == {"Client.InstanceInitiatedShutdown"}
        assert len(scene.instances()) == len(NAMES) + 1
        assert len(scene.instances("b")) == 2
