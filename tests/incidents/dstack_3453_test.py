"""dstackai/dstack#3453: machines that were made although the tool was told otherwise.

There: the server is killed, or the cloud answers with an error, after the machine was made. No
record of it exists, so nobody ever ends it.
Here: RunInstances makes an instance and answers 500, for as long as it is asked. One sweep, which
knows nothing but tags, ends it and all the rest; a retry while the run is young finds it again.
"""

from __future__ import annotations

import pytest

from orchestrator.errors import ApiError
from tests.faults.cloud.client import Call
from tests.faults.wire import refusal
from tests.faults.world import Enforcers
from tests.incidents.scene import FOR_EVER, MINUTE, Scene, opened


def answers_500(scene: Scene) -> None:
    """Each RunInstances has its effect and is called an error."""

    def after(call: Call) -> None:
        if call.operation == "run_instances":
            raise refusal(call.operation, "InternalError", 500)

    scene.world.cloud.after = after


def test_one_sweep_finds_what_an_error_said_was_never_made() -> None:
    with opened(FOR_EVER, Enforcers(box=False, cloud=False)) as scene:
        answers_500(scene)
        with pytest.raises(ApiError):
            scene.launched()
        assert len(scene.alive()) == 1  # asked many times, all with one token
        assert sum(call.operation == "run_instances" for call in scene.calls) > 1
        scene.until(scene.controller().record.expires_at + MINUTE)
        swept = scene.sweep()
        assert (swept.ended, swept.left, swept.failed) == ((scene.run_id,), (), {})
        assert scene.alive() == []
        assert scene.left() == []


def test_a_retry_takes_over_what_an_error_said_was_never_made(scene: Scene) -> None:
    answers_500(scene)
    with pytest.raises(ApiError):
        scene.launched()
    scene.world.cloud.after = None
    scene.controller().launch_all()
    assert len(scene.instances()) == len(scene.alive()) == 1
