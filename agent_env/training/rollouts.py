"""What became of each rollout: scored, or lost to something that isn't the model's doing.

An unscored rollout has reward None. It is counted, and never enters a mean as 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_env.statistics import estimate
from agent_env.training._episode import Rollout as Episode
from agent_env.training.sums import episode_numbers
from agent_env.training.trl import Environment

NO_CALL_TRUNCATED = "env/no_call_truncated"
"""Share of the rollouts whose tokens ran out before any call: thinking may take them all."""


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One episode as the trainer saw it."""

    reward: float | None
    completion: Any
    row: dict[str, Any]
    """The dataset row it came from, without its prompt."""
    lost: str | None = None
    """Why it has no reward, as far as its environment says."""
    episode: Episode | None = None
    """What its environment says of it; None where that isn't ours."""
    truncated: bool = False
    """Whether its completion ended for want of tokens, not of words."""

    @property
    def no_call_truncated(self) -> bool:
        """Whether its tokens ran out before any call reached the environment."""
        return self.truncated and self.episode is not None and not self.episode.tool_calls


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Rollouts summed up."""

    rollouts: int
    scored: int
    reward: float | None
    """Mean over the scored ones; None if there are none."""
    stderr: float | None
    """Standard error of that mean, clustered by task; None for fewer than two tasks."""
    rewards: dict[str, float | None] = field(default_factory=dict)
    """Of several bundles also the mean of each, as `reward/NAME`."""
    episodes: dict[str, float] = field(default_factory=dict)
    """What the environments say, by the names that trainers log: `env/…`, `score/…`."""

    @property
    def unscored(self) -> int:
        return self.rollouts - self.scored

    def numbers(self) -> dict[str, float | int | None]:
        """As a metrics line has them."""
        counts = {"rollouts": self.rollouts, "scored": self.scored, "unscored": self.unscored}
        own = {"reward": self.reward, "stderr": self.stderr, **counts}
        return own | self.rewards | self.episodes


def tally(rollouts: Sequence[Rollout]) -> Tally:
    """Count and average."""
    tasks = [_task(rollout, n) for n, rollout in enumerate(rollouts)]
    found = estimate([rollout.reward for rollout in rollouts], tasks)
    return Tally(
        rollouts=len(rollouts),
        scored=found.scored,
        reward=found.mean,
        stderr=found.stderr if found.clusters > 1 else None,
        rewards=_by_bundle(rollouts),
        episodes=_told(rollouts),
    )


def _by_bundle(rollouts: Sequence[Rollout]) -> dict[str, float | None]:
    """The rows of several bundles name theirs."""
    groups: dict[str, list[float | None]] = {}
    for rollout in rollouts:
        if name := rollout.row.get("environment"):
            groups.setdefault(f"reward/{name}", []).append(rollout.reward)
    return {name: estimate(groups[name], range(len(groups[name]))).mean for name in sorted(groups)}


def _told(rollouts: Sequence[Rollout]) -> dict[str, float]:
    told = [rollout for rollout in rollouts if rollout.episode is not None]
    numbers = episode_numbers([rollout.episode for rollout in told if rollout.episode is not None])
    if told:
        cut = sum(rollout.no_call_truncated for rollout in told)
        numbers[NO_CALL_TRUNCATED] = cut / len(told)
    return numbers


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
        self.ends: frozenset[int] = frozenset()
        """Token ids of which a completion that wasn't cut has one at its end."""

    def __call__(
        self,
        *,
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        environments: Sequence[Any],
        log_metric: Callable[[str, float], None],
        **columns: Any,
    ) -> list[None]:
        rows = _rows(columns, len(completions))
        batch = [
            self._seen(*one)
            for one in zip(completions, completion_ids, environments, rows, strict=True)
        ]
        for name, value in tally(batch).episodes.items():
            log_metric(name, value)
        self._rollouts += batch
        return [None] * len(completions)

    def _seen(
        self, completion: Any, ids: Sequence[int], environment: Any, row: dict[str, Any]
    ) -> Rollout:
        reward = _clean(environment.get_reward())
        ours = environment._settle() if isinstance(environment, Environment) else None
        return Rollout(
            reward=reward,
            completion=completion,
            row=row,
            lost=ours.lost if ours is not None and reward is None else None,
            episode=ours,
            truncated=not ids or ids[-1] not in self.ends,
        )

    def take(self) -> list[Rollout]:
        """The rollouts since the last call."""
        taken, self._rollouts = self._rollouts, []
        return taken


_NOT_COLUMNS = frozenset({"prompts", "trainer_state", "log_extra", "prompt"})


def _rows(columns: dict[str, Any], count: int) -> list[dict[str, Any]]:
    kept = {key: values for key, values in columns.items() if key not in _NOT_COLUMNS}
    return [{key: values[i] for key, values in kept.items()} for i in range(count)]


def _clean(reward: float | None) -> float | None:
    return None if reward is None or not math.isfinite(reward) else float(reward)
