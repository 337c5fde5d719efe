"""Each rollout becomes a line of `out/rollouts.jsonl`; unscored ones are counted, not averaged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from agent_env.training import learner, preflight
from agent_env.training.config import EvaluateConfig
from agent_env.training.job import Job
from agent_env.training.metrics import MetricsFile
from agent_env.training.rollouts import Rollout
from agent_env.training.serving import environments, open_env, served_splits, task_rows
from agent_env.training.stopping import StopRequest
from agent_env.training.summary import memory_numbers
from agent_env.training.trainer import evaluator


def run(job: Job[EvaluateConfig], stop: StopRequest) -> None:
    """Sample, write, sum up. Raises JobFailed when not one rollout was scored."""
    config = job.config
    metrics = MetricsFile(job.metrics, max_steps=1)
    metrics.cut_back(-1)
    sessions = config.eval_rollouts(config.samples, config.tasks)
    with open_env(config, sessions=sessions) as env:
        preflight.check_job(job, env, sessions=sessions)
        model, tokenizer = learner.load(job.model_source, config)
        judge = evaluator(
            config,
            model,
            tokenizer,
            environments(env, config, config.split),
            task_rows(env, served_splits(env, config, config.split), config.tasks),
            peft_config=learner.peft_config(config),
            samples=config.samples,
            out=job.out,
            metrics=metrics,
            stop=stop,
        )
        judge.evaluate()
    write_rollouts(judge.rollouts, job.out / "rollouts.jsonl")
    counted = judge.counted()
    numbers = counted.numbers()
    numbers |= {f"eval_{name}": numbers[name] for name in ("reward", *counted.rewards)}
    numbers |= memory_numbers(metrics.lines())
    metrics.append("final", 1, numbers, datetime.now(UTC))


def write_rollouts(rollouts: Sequence[Rollout], path: Path) -> None:
    """One JSON line a rollout; an unscored one has reward null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (
        json.dumps({"reward": rollout.reward, **rollout.row, "completion": rollout.completion})
        for rollout in rollouts
    )
    path.write_text("".join(line + "\n" for line in lines))
