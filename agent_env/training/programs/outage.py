"""Counts what an env server's outage costs: the rollouts of the step it interrupts, of the step
that started while it came back, and of those after. Starts over when it is started again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agent_env.client import AgentEnv
from agent_env.training import learner, preflight
from agent_env.training.config import OutageConfig
from agent_env.training.interruption import Interruption
from agent_env.training.job import Job
from agent_env.training.metrics import Line, MetricsFile
from agent_env.training.serving import check_bundles, task_rows
from agent_env.training.stopping import Stopped, StopRequest
from agent_env.training.summary import median_of, memory_numbers
from agent_env.training.trainer import Trainer, arguments
from agent_env.training.unsloth import grpo_config

COUNTS = ("rollouts", "scored", "unscored")


def run(job: Job[OutageConfig], stop: StopRequest) -> None:
    """Train through the outage and write what it cost."""
    config = job.config
    check_bundles(config)
    metrics = MetricsFile(job.metrics, max_steps=config.steps)
    metrics.cut_back(-1)
    with (
        TemporaryDirectory() as journal,
        closing(Interruption(config, Path(journal))) as interruption,
        AgentEnv(interruption.url, waits_for_server=interruption.rule.waits) as env,
    ):
        preflight.check_job(job, env, sessions=config.rollouts_per_step)
        _trainer(job, env, interruption, metrics, stop).train()
    if stop.asked:
        raise Stopped
    numbers = outage_costs(metrics.lines(), config.interrupt_step)
    numbers |= {f"interrupted_{name}": count for name, count in interruption.counts.items()}
    numbers |= {"stopped_after_s": interruption.stopped_after_s, "down_s": interruption.down_s}
    numbers |= memory_numbers(metrics.lines())
    metrics.append("final", config.steps, numbers | {"rule": config.rule}, datetime.now(UTC))


def outage_costs(lines: Sequence[Line], step: int) -> dict[str, Any]:
    """Rollouts of the interrupted `step`, of the next one, and of all after that.

    And how long such a step took (`…_seconds`, of several the median), waits for the server
    included; and the interrupted step's mean reward over its scored rollouts, if there are any.
    """
    trained = [line for line in lines if line["kind"] == "train"]
    groups = {
        "interrupted": [line for line in trained if line["step"] == step],
        "next": [line for line in trained if line["step"] == step + 1],
        "after": [line for line in trained if int(line["step"] or 0) > step + 1],
    }
    costs: dict[str, Any] = {
        f"{name}_{count}": sum(int(line[count] or 0) for line in group)
        for name, group in groups.items()
        for count in COUNTS
    }
    costs |= {f"{name}_seconds": median_of(group, "seconds") for name, group in groups.items()}
    (reward,) = (line["reward"] for line in groups["interrupted"])
    return costs if reward is None else costs | {"interrupted_reward": reward}


def _trainer(
    job: Job[OutageConfig],
    env: AgentEnv,
    interruption: Interruption,
    metrics: MetricsFile,
    stop: StopRequest,
) -> Trainer:
    config = job.config
    model, tokenizer = learner.load(job.model_source, config)
    settings = learner.step_arguments(config) | {"save_strategy": "no"}
    return Trainer(
        stop=stop,
        metrics=metrics,
        guard=learner.guard(config),
        callbacks=[interruption],
        model=model,
        processing_class=tokenizer,
        environment_factory=interruption.watched(env.factory_for(config.split)),
        train_dataset=learner.planned_rows(config, task_rows(env, config.split)),
        args=grpo_config(**arguments(config, job.out, **settings)),
    )
