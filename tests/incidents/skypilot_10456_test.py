"""skypilot-org/skypilot#10456 and #9189: a job that succeeded is called failed after all.

There: the job is done, then the clean-up of its machine fails, and that failure is written over
the job's own outcome.
Here: every job is done and the network can't be deleted. The teardown is an alarm; what is said of
the jobs, and what is pulled, is as it was. Later the clean-up succeeds, and again changes nothing.
"""

from __future__ import annotations

import pytest

from orchestrator.errors import TeardownError
from orchestrator.results import State
from orchestrator.snapshot import Stage
from tests.incidents.scene import Scene


def test_a_failed_teardown_changes_nothing_about_the_jobs(scene: Scene) -> None:
    runner = scene.begin()
    scene.refused["delete_vpc"] = "UnauthorizedOperation"
    with pytest.raises(TeardownError, match="vpc") as told:
        runner.drive()
    assert told.value.exit_code == 14
    seen = scene.controller().look()
    assert (seen.stage, seen.failed) == (Stage.TEARING_DOWN, ())
    assert [job.state for job in seen.jobs] == ["done"]
    assert scene.pull().state is State.COMPLETE
    scene.refused.clear()
    scene.controller().finish()
    seen = scene.controller().look()
    assert (seen.stage, [job.state for job in seen.jobs]) == (Stage.CLEAN, ["done"])
    assert scene.left() == []
