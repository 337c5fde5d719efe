"""What became of each rollout: scored, or lost to something that isn't the model's doing.

An unscored rollout has reward None. It is counted, and never enters a mean as 0.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from agent_env.statistics import estimate
from agent_env.training.trl import Environment


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One episode as the trainer saw it."""

    reward: float | None
    completion: Any
    row: dict[str, Any]
    """The dataset row it came from, without its prompt."""
    lost: str | None = None
    """Why it has no reward, as far as its environment says."""


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Rollouts summed up."""

    rollouts: int
    scored: int
    reward: float | None
    """Mean over the scored ones; None if there are none."""
    stderr: float | None
    """Standard error of that mean, clustered by task; None for fewer than two tasks."""

    @property
    def unscored(self) -> int:
        return self.rollouts - self.scored

    def numbers(self) -> dict[str, float | int | None]:
        """As a metrics line has them."""
        counts = {"rollouts": self.rollouts, "scored": self.scored, "unscored": self.unscored}
        return {"reward": self.reward, "stderr": self.stderr, **counts}


def tally(rollouts: Sequence[Rollout]) -> Tally:
    """Count and average."""
    tasks = [_task(rollout, n) for n, rollout in enumerate(rollouts)]
    found = estimate([rollout.reward for rollout in rollouts], tasks)
    return Tally(
        rollouts=len(rollouts),
        scored=found.scored,
        reward=found.mean,
        stderr=found.stderr if found.clusters > 1 else None,
    )


def _task(rollout: Rollout, number: int) -> Hashable:
    """What its like share; a row without a task stands for itself."""
    return rollout.row.get("task_id") or number


class Recorder:
    """A reward function that scores nothing and remembers everything.

    The trainer offers an environment no other way to report than its reward; it does show each
    batch to its reward functions.
    """

    __name__ = "recorder"

    def __init__(self) -> None:
        self._rollouts: list[Rollout] = []

    def __call__(
        self, *, completions: Sequence[Any], environments: Sequence[Any], **columns: Any
    ) -> list[None]:
        rows = _rows(columns, len(completions))
        for completion, environment, row in zip(completions, environments, rows, strict=True):
            reward = _clean(environment.get_reward())
            why = None if reward is not None else _why(environment)
            self._rollouts.append(Rollout(reward=reward, completion=completion, row=row, lost=why))
        return [None] * len(completions)

    def take(self) -> list[Rollout]:
        """The rollouts since the last call."""
        taken, self._rollouts = self._rollouts, []
        return taken


_NOT_COLUMNS = frozenset(
    {"prompts", "completion_ids", "trainer_state", "log_extra", "log_metric", "prompt"}
)


def _rows(columns: dict[str, Any], count: int) -> list[dict[str, Any]]:
    kept = {key: values for key, values in columns.items() if key not in _NOT_COLUMNS}
    return [{key: values[i] for key, values in kept.items()} for i in range(count)]


def _why(environment: Any) -> str | None:
    """An environment of ours knows what lost its rollout."""
    return environment._rollout.lost if isinstance(environment, Environment) else None


def _clean(reward: float | None) -> float | None:
    return None if reward is None or not math.isfinite(reward) else float(reward)
