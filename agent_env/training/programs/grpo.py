"""May be killed at any moment and started again: it goes on from the latest complete checkpoint
under `out`, cuts the metrics back to it, and ends with the numbers of an undisturbed run.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from agent_env.client import AgentEnv
from agent_env.training import learner, models, preflight
from agent_env.training.checkpoints import checkpoint_step, latest_complete_checkpoint
from agent_env.training.config import GrpoConfig
from agent_env.training.job import Job, JobFailed
from agent_env.training.metrics import MetricsFile
from agent_env.training.rollouts import NO_CALL_TRUNCATED
from agent_env.training.serving import environments, open_env, served_splits, task_rows
from agent_env.training.stopping import Stopped, StopRequest
from agent_env.training.summary import eval_numbers, training_numbers
from agent_env.training.trainer import Trainer


def run(job: Job[GrpoConfig], stop: StopRequest) -> None:
    """Train to the last step, or raise Stopped after a checkpoint."""
    config = job.config
    metrics = MetricsFile(job.metrics, max_steps=config.steps)
    sessions = max(config.rollouts_per_step, config.batch, config.eval_samples)
    with open_env(config, sessions=sessions) as env:
        preflight.check_job(job, env, sessions=sessions)
        trainer = _trainer(job, env, metrics, stop)
        _learn(trainer, job, metrics, stop)
    metrics.append("final", config.steps, _summary(metrics, config.steps), datetime.now(UTC))


def _trainer(
    job: Job[GrpoConfig], env: AgentEnv, metrics: MetricsFile, stop: StopRequest
) -> Trainer:
    config = job.config
    model, tokenizer = learner.load(job.model_source, config)
    return learner.grpo_trainer(
        config,
        model,
        tokenizer,
        environments(env, config, config.split, config.eval_split),
        rows=task_rows(env, served_splits(env, config, config.split)),
        eval_rows=task_rows(env, served_splits(env, config, config.eval_split), config.eval_tasks),
        out=job.out,
        metrics=metrics,
        stop=stop,
    )


def _learn(
    trainer: Trainer, job: Job[GrpoConfig], metrics: MetricsFile, stop: StopRequest
) -> None:
    """Eval before, training with its evals, eval after, model: what isn't there yet."""
    checkpoint = latest_complete_checkpoint(job.out)
    metrics.cut_back((checkpoint_step(checkpoint) or 0) if checkpoint else 0)
    if metrics.find("eval", 0) is None:
        trainer.judge()
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if stop.asked:
        raise Stopped
    if metrics.find("eval", job.config.steps) is None:
        trainer.judge()
    models.save_model(trainer.model, trainer.processing_class, job.out / "model")


def _summary(metrics: MetricsFile, steps: int) -> dict[str, Any]:
    """The numbers a runbook's `expect` speaks of. Raises JobFailed when an eval has no score."""
    before, after = metrics.find("eval", 0) or {}, metrics.find("eval", steps) or {}
    if before.get("reward") is None or after.get("reward") is None:
        raise JobFailed(
            f"no rise to tell: eval reward {before.get('reward')} before, "
            f"{after.get('reward')} after"
        )
    numbers: dict[str, Any] = {}
    for name in (name for name in after if name.partition("/")[0] == "reward"):
        numbers |= _rise(before.get(name), after[name], name.removeprefix("reward"))
    lost = [line.get("unscored") for line in metrics.lines() if line["kind"] == "train"]
    numbers["unscored"] = sum(count for count in lost if isinstance(count, int))
    numbers |= training_numbers(metrics.lines()) | eval_numbers(metrics.lines(), steps)
    return numbers | {NO_CALL_TRUNCATED: after.get(NO_CALL_TRUNCATED)}


def _rise(before: Any, after: Any, of: str) -> dict[str, Any]:
    """An eval's reward before and after, `of` one bundle (`/NAME`) or in all (empty)."""
    told = before is not None and after is not None
    return {
        f"eval_reward_before{of}": before,
        f"eval_reward_after{of}": after,
        f"rise{of}": after - before if told else None,
    }
