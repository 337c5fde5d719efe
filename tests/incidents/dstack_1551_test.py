"""dstackai/dstack#1551: what can't be reached is written down as terminated.

There: the server has no network for a while. It marks its machines as ended, and they cost on.
Here: a controller that watches two boxes is offline for an hour. It writes nothing down meanwhile.
On return it asks EC2: one box lives on and is left alone, the other has ended, at EC2's time.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from orchestrator.run import EventKind
from orchestrator.snapshot import Stage
from tests.incidents.scene import FOR_EVER, opened

HOUR = timedelta(hours=1)
BOX = "{instance: g6.xlarge, hours: 2h, drain: 2m, cloud_margin: 1m}"
TWO = (
    FOR_EVER.partition("boxes:")[0]
    + f"boxes:\n  stays: {BOX}\n  ends: {BOX}\n"
    + "jobs:\n  a: {box: stays, command: sim 6, hours: 1h}\n"
    + "  b: {box: ends, command: sim 2, hours: 1h}\n"
)


def test_an_hour_offline_makes_the_controller_neither_guess_nor_forget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.faults.trainer.STEP_S", 900.0)  # `ends` is done after half an hour
    with opened(TWO) as scene:
        runner, said = scene.launched(), list[str]()
        runner.on_step, runner.poll_s = said.append, 120.0
        gone = scene.world.time.now() + timedelta(minutes=5)
        back = gone + HOUR

        def at_call(_: object) -> None:
            scene.offline = gone <= scene.world.time.now() < back

        scene.at_call = at_call
        assert runner.drive().stage is Stage.CLEAN
        assert any(words.startswith("no answer, trying again") for words in said)
        assert not [e for e in runner.log.read() if gone <= e.at < back]
        (stays,), (ends,) = scene.instances("stays"), scene.instances("ends")
        assert ends.ended_at is not None
        assert gone < ends.ended_at < back
        written = {e.instance_id: e for e in scene.events(EventKind.ENDED)}
        assert written[ends.id].ended_at == ends.ended_at.replace(microsecond=0)
        assert back <= written[ends.id].at < back + timedelta(minutes=5)
        assert stays.ended_at is not None
        assert stays.ended_at > back
