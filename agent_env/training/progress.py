"""From the trainer's events to metrics lines, a line of log, and an end when nothing is scored."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from transformers import TrainerCallback

from agent_env.training.job import JobFailed
from agent_env.training.metrics import MetricsFile
from agent_env.training.rollouts import Recorder, Tally, tally
from agent_env.training.stopping import StopRequest

TRAINER_NUMBERS = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "entropy": "entropy",
    "tokens": "completions/mean_length",
    "calls": "tools/call_frequency",
    "failed_calls": "tools/failure_frequency",
    "seconds": "step_time",
}
"""Our name and the trainer's."""


class Progress(TrainerCallback):  # type: ignore[misc]
    """Writes a line for each step and each eval."""

    def __init__(
        self, metrics: MetricsFile, recorder: Recorder, *, unscored_steps: int | None = None
    ) -> None:
        self.metrics = metrics
        self.recorder = recorder
        self.unscored_steps = unscored_steps
        self._lost_in_a_row = 0
        self.last: Tally | None = None
        """What the last train line counted."""

    def on_log(
        self, _args: Any, state: Any, _control: Any, logs: Mapping[str, Any], **_rest: Any
    ) -> None:
        """A training step's line. Raises JobFailed when too many in a row were lost."""
        if "reward" not in logs:
            return
        counted = self.last = tally(self.recorder.take())
        numbers = {ours: logs.get(theirs) for ours, theirs in TRAINER_NUMBERS.items()}
        self._write("train", state.global_step, counted, numbers)
        self._lost_in_a_row = 0 if counted.scored else self._lost_in_a_row + 1
        if self._lost_in_a_row == self.unscored_steps:
            raise JobFailed(
                f"no rollout of {self._lost_in_a_row} steps in a row was scored: the env server "
                "is gone or can't score; see its log"
            )

    def evaluated(self, step: int, counted: Tally, began: float) -> None:
        """An eval's line; `began` is when, by `time.monotonic()`."""
        self._write("eval", step, counted, {"seconds": time.monotonic() - began})

    def _write(self, kind: Any, step: int, counted: Tally, numbers: Mapping[str, Any]) -> None:
        self.metrics.append(kind, step, counted.numbers() | dict(numbers), datetime.now(UTC))
        reward = "none" if counted.reward is None else f"{counted.reward:.3f}"
        say(
            f"{kind} {step}/{self.metrics.max_steps} reward {reward} "
            f"rollouts {counted.rollouts} unscored {counted.unscored} "
            f"{numbers.get('seconds') or 0:.1f} s"
        )


class StopAtStepEnd(TrainerCallback):  # type: ignore[misc]
    """A request to stop becomes a checkpoint at the end of the step."""

    def __init__(self, stop: StopRequest) -> None:
        self.stop = stop

    def on_step_end(self, _args: Any, _state: Any, control: Any, **_rest: Any) -> None:
        if self.stop.asked:
            control.should_save = control.should_training_stop = True


def say(text: str) -> None:
    """One line of the job's log."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
