"""iterative/terraform-provider-iterative#462 and #331: a destroy hangs, or its waiter gives up.

There: one thing doesn't go away. The destroy waits for ever, or stops with "timeout" and no way
on, and what had not been reached yet stays and bills.
Here: an instance that never gets beyond shutting-down, an interface that is never released, an
endpoint that is never gone. Each time the teardown ends in bounded time, has removed what it
could, names what holds it and the command to type; which then goes on from there to the end.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.aws.waits import DEPENDENCY_S, TEARDOWN_S, TERMINATION_S
from orchestrator.errors import TeardownError
from tests.incidents.scene import FOR_EVER, opened

AWS = Path(__file__).parents[2] / "orchestrator" / "aws"
NEVER_S = 10.0**6
LATE_S = 60.0
"""For the calls themselves, and the pauses between them."""


@pytest.mark.parametrize(
    "slow, holds, within_s, still",
    [
        ("shutdown_s", r"instance i-\w+  shutting-down", TERMINATION_S, {"schedule", "role"}),
        ("linger_s", r"subnet .* held by network-interface eni-", TEARDOWN_S, set()),
        ("endpoint_linger_s", r"vpc .* held by vpc-endpoint vpce-", TEARDOWN_S, set()),
    ],
)
def test_a_teardown_that_is_held_up_ends_in_time_and_goes_on_when_typed_again(
    slow: str, holds: str, within_s: float, still: set[str]
) -> None:
    with opened(FOR_EVER) as scene:
        runner = scene.launched()
        scene.wait(120)
        before = getattr(scene.world.rules, slow)
        setattr(scene.world.rules, slow, NEVER_S)
        began = scene.world.time.now()
        with pytest.raises(TeardownError) as told:
            runner.finish()
        took_s = (scene.world.time.now() - began).total_seconds()
        assert DEPENDENCY_S / 2 <= took_s <= within_s + LATE_S
        assert told.value.exit_code == 14
        assert f"gpurun down {scene.run_id}" in told.value.hint
        assert re.search(holds, told.value.message)
        kinds = {left.partition(" ")[0] for left in scene.left()}
        assert still <= kinds, "the enforcer of what still runs isn't taken away"
        assert not (kinds & {"role", "key-pair", "schedule"}) or still
        setattr(scene.world.rules, slow, before)
        scene.wait(2 * NEVER_S)  # whatever hung lets go at last
        scene.controller().finish()
        assert scene.left() == []


def test_nothing_on_the_aws_side_waits_without_a_deadline() -> None:
    """All waiting is `Patience`'s, which takes no wait without a time; no waiter of the SDK's."""
    for path in AWS.glob("*.py"):
        text = path.read_text()
        assert "get_waiter" not in text, path.name
        if path.name != "waits.py":
            assert not re.search(r"\bsleep\(|while True", text), path.name
            waits = text.count("patience.retry(") + text.count("patience.until(")
            assert text.count("timeout_s=") >= waits, path.name
