"""What the programs under verl and under SkyRL check before, and tell at the end."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agent_env.client import AgentEnv
from agent_env.training import trained_on
from agent_env.training.config import ConfigError
from agent_env.training.job import JobFailed
from agent_env.training.metrics import MetricsFile
from agent_env.training.summary import eval_numbers, training_numbers


def check_trained_on(
    model: str, env: AgentEnv, splits: Iterable[str], folder: Path, *, goes_on: bool
) -> None:
    """Keep in `folder` what is trained on; `goes_on` says whether it has checkpoints.

    Raises ConfigError where the model or the checkpoints have learned something else.
    """
    now = trained_on.now_served(env, splits)
    if faults := list(trained_on.model_faults(Path(model), now, "config.model")):
        raise ConfigError(faults)
    before = trained_on.read(folder)
    if before is not None and before != now and goes_on:
        raise ConfigError(
            [
                f"{folder} has checkpoints of a training on other tools, tasks or rewards: start"
                " anew in an empty out folder, or serve what they were trained on"
            ]
        )
    trained_on.write(folder, now)


def summary(metrics: MetricsFile, steps: int) -> dict[str, Any]:
    """The numbers a runbook's `expect` speaks of. Raises JobFailed when an eval has no score."""
    before, after = metrics.reward_at(0), metrics.reward_at(steps)
    if before is None or after is None:
        raise JobFailed(f"no rise to tell: eval reward {before} before, {after} after")
    lost = [line.get("unscored") for line in metrics.lines() if line["kind"] == "train"]
    return {
        "eval_reward_before": before,
        "eval_reward_after": after,
        "rise": after - before,
        "unscored": sum(count for count in lost if isinstance(count, int)),
        **training_numbers(metrics.lines()),
        **eval_numbers(metrics.lines(), steps),
    }
