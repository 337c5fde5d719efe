"""skypilot-org/skypilot#4605: a termination that was refused passes for one that happened.

There: the credentials no longer allow to terminate. The command says nothing, the machine is gone
from the tool's list, and goes on costing.
Here: EC2 answers 403 to TerminateInstances. `down` ends as an alarm with an exit code of its own,
the run isn't called clean, and the cloud's own switch ends the box at its time.
"""

from __future__ import annotations

import pytest

from orchestrator.errors import TeardownError
from orchestrator.run import EventKind
from tests.faults.world import Enforcers
from tests.incidents.scene import FOR_EVER, MINUTE, opened


def test_a_refused_termination_is_loud_and_the_cloud_ends_the_box() -> None:
    with opened(FOR_EVER, Enforcers(box=False)) as scene:
        box = scene.launched().record.plan.box("one")
        (instance,) = scene.instances()
        scene.refused["terminate_instances"] = "UnauthorizedOperation"
        with pytest.raises(TeardownError, match="TERMINATION UNCONFIRMED") as told:
            scene.controller().finish()
        assert told.value.exit_code == 14
        assert instance.id in told.value.message
        assert f"ends it at {box.cloud_at:%Y-%m-%d %H:%M:%S} UTC" in told.value.message
        assert scene.events(EventKind.CLEAN) == scene.events(EventKind.ENDED) == []
        scene.until(box.cloud_at + 2 * MINUTE)
        assert instance.state == "terminated"
        scene.controller().finish()  # with the same credentials: there is nothing to end
        assert scene.left() == []
