"""skypilot-org/skypilot#7022: a teardown that overtakes the creation.

There: the request to create is still pending when the teardown lists what there is. It finds
nothing, reports success, and a moment later the machine appears.
Here: `down` comes right after RunInstances, while EC2 shows the new instance to nobody for half a
minute. It ends the instance as soon as that may be seen, and isn't content before.
"""

from __future__ import annotations

import pytest

from orchestrator.run import EventKind
from tests.faults.strikes import ControllerDied
from tests.incidents.scene import FOR_EVER, MINUTE, opened

SHOWN_AFTER_S = 30.0


def test_down_finds_an_instance_that_is_not_shown_yet() -> None:
    with opened(FOR_EVER) as scene:
        scene.world.rules.invisible_s = SHOWN_AFTER_S
        scene.kill_after("run_instances")
        with pytest.raises(ControllerDied):
            scene.launched()
        down = scene.controller()
        assert down.instances() == []
        asked_at = scene.world.time.now()
        down.finish()
        (box,) = scene.instances()
        assert (box.state, box.reason) == ("terminated", "Client.UserInitiatedShutdown")
        assert scene.left() == []
        (clean,) = scene.events(EventKind.CLEAN)
        assert box.terminated_at is not None
        assert clean.at >= box.terminated_at
        assert box.ended_at is not None
        assert box.ended_at - asked_at < 2 * MINUTE
