"""From the trainer's events to metrics lines and a line of log, and to an end of what is lost."""

from __future__ import annotations

import sys
import time
from collections.abc import Hashable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from transformers import TrainerCallback

from agent_env.training.gpu_memory import GpuMemory
from agent_env.training.guard import UnscoredGuard
from agent_env.training.job import JobFailed, next_command
from agent_env.training.metrics import MetricsFile
from agent_env.training.rollouts import NO_CALL_TRUNCATED, Rollout, Tally, tally
from agent_env.training.stopping import StopRequest
from agent_env.training.sums import flat_share

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


class Source(Protocol):
    """Whoever has the rollouts since the last line."""

    def take(self) -> list[Rollout]:
        """Those, once."""


class Progress(TrainerCallback):  # type: ignore[misc]
    """Writes a line for each step and each eval."""

    def __init__(
        self,
        metrics: MetricsFile,
        recorder: Source,
        *,
        guard: UnscoredGuard | None = None,
        numbers: Mapping[str, str] = TRAINER_NUMBERS,
    ) -> None:
        self.metrics = metrics
        self.recorder = recorder
        self._guard = guard
        self._numbers = numbers
        self._warned = False
        self.may_think = True
        """Whether the model may think before it acts."""
        self.tokens: int | None = None
        """The limit `completion_tokens`, where it is known."""
        self.group: int | None = None
        """Rollouts of a group, where they come group after group; else their rows name it."""
        self.memory = GpuMemory()
        self.last: Tally | None = None
        """What the last train line counted."""

    def on_log(
        self, _args: Any, state: Any, _control: Any, logs: Mapping[str, Any], **_rest: Any
    ) -> None:
        """A training step's line. Raises JobFailed when too many rollouts were lost of late."""
        if "reward" not in logs or "train_runtime" in logs:
            return
        rollouts = self.recorder.take()
        counted = self.last = tally(rollouts)
        numbers = {ours: logs.get(theirs) for ours, theirs in self._numbers.items()}
        rewards = [rollout.reward for rollout in rollouts]
        numbers["flat_groups"] = flat_share(rewards, self._groups(rollouts))
        self._write("train", state.global_step, counted, numbers)
        if self._guard is not None:
            _watch(self._guard, rollouts)

    def evaluated(self, step: int, counted: Tally, began: float) -> None:
        """An eval's line; `began` is when, by `time.monotonic()`."""
        self._write("eval", step, counted, {"seconds": time.monotonic() - began})

    def _look(self, *_told: Any, **_rest: Any) -> None:
        """Where memory may be at its highest and the trainer says so."""
        self.memory.look()

    on_step_begin = on_substep_end = on_pre_optimizer_step = on_step_end = _look
    on_prediction_step = _look

    def _write(self, kind: Any, step: int, counted: Tally, numbers: Mapping[str, Any]) -> None:
        values = counted.numbers() | dict(numbers) | self.memory.take()
        self.metrics.append(kind, step, values, datetime.now(UTC))
        self._warn(counted)
        reward = "none" if counted.reward is None else f"{counted.reward:.3f}"
        say(
            f"{kind} {step}/{self.metrics.max_steps} reward {reward} "
            f"rollouts {counted.rollouts} unscored {counted.unscored} "
            f"{numbers.get('seconds') or 0:.1f} s"
        )

    def _groups(self, rollouts: Sequence[Rollout]) -> list[Hashable]:
        if self.group is None:
            return [rollout.row.get("task_id") for rollout in rollouts]
        return [number // self.group for number in range(len(rollouts))]

    def _warn(self, counted: Tally) -> None:
        if not self._warned and counted.episodes.get(NO_CALL_TRUNCATED, 0) > 0.5:
            self._warned = True
            now = f" (now {self.tokens})" if self.tokens else ""
            less = ", or set thinking: false if the model thinks" if self.may_think else ""
            said = "most rollouts ran out of completion_tokens before any call: raise it"
            say(f"warning: {said}{now}{less}")


def _watch(guard: UnscoredGuard, rollouts: Sequence[Rollout]) -> None:
    for rollout in rollouts:
        guard.count(rollout.reward is not None, rollout.lost)
    if why := guard.tripped:
        raise JobFailed(
            f"{why}. The weights hardly move while the bill goes on, so the job ends: mend the "
            f"env server, then {next_command()}"
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
