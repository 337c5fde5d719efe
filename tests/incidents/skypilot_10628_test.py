"""skypilot-org/skypilot#10628: a job that hangs counts as busy.

There: the automatic stop watches for idleness, and a process that waits in a loop isn't idle, so
that its machine goes on costing until a person notices.
Here: the step counter stands still, whatever the GPU does. After `stall` the box writes the job's
stacks down, ends it, saves what there is and powers off, hours before its deadline.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from orchestrator.box.process import Place
from tests.faults.machine import SimulatedBody
from tests.faults.trainer import STEP_S, Trainer
from tests.incidents.scene import ALIVE, FOR_EVER, opened

STALL_S, STOOD_AT = 20 * 60, 4
RUNBOOK = FOR_EVER.replace("hours: 12m", "hours: 2h").replace("hours: 5m", "hours: 1h")
FROZEN = RUNBOOK.replace("retries: 0", "retries: 0, stall: 20m")


class Stuck(Trainer):
    """Stands still after some steps, and would be called busy by anybody who looks at its GPU."""

    def advance(self) -> None:
        if self._step < STOOD_AT or self._told:
            super().advance()


def keep(_: SimulatedBody, place: Place, pid: int, now: float) -> None:
    """Where the job stands; reading it out of a real process is frozen_test's subject."""
    place.stacks.write_text("=== the line that waits\n")


def test_a_job_without_a_new_step_ends_its_box_and_leaves_its_stacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.faults.machine.Trainer", Stuck)
    monkeypatch.setattr(SimulatedBody, "keep_stacks", keep)
    with opened(FROZEN) as scene:
        runner = scene.launched()
        (box,) = scene.instances()
        scene.wait(STOOD_AT * STEP_S + STALL_S)
        assert box.state in ALIVE  # it has stood still, but not for long enough
        scene.wait(5 * 60)
        assert box.ended_at is not None
        assert runner.record.plan.box("one").poweroff_at - box.ended_at > timedelta(hours=1)
        (job,) = runner.look().jobs
        assert (job.state, job.reason[:6]) == ("failed", "frozen")
        scene.pull()
        assert scene.pulled("train", "stacks.txt").startswith(b"=== the line")
        assert scene.pulled("train", "out/checkpoint-3/adapter") == b"weights train 3"
