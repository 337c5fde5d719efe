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
from agent_env.training.job import Job
from agent_env.training.metrics import MetricsFile
from agent_env.training.progress import say
from agent_env.training.rollouts import NO_CALL_TRUNCATED
from agent_env.training.serving import environments, open_env, served_splits, task_rows
from agent_env.training.stopping import Stopped, StopRequest
from agent_env.training.summary import eval_numbers, flat_warning, training_numbers
from agent_env.training.trainer import Trainer


def run(job: Job[GrpoConfig], stop: StopRequest) -> None:
    """Train to the last step, or raise Stopped after a checkpoint."""
    config = job.config
    metrics = MetricsFile(job.metrics, max_steps=config.steps)
    judged = config.eval_rollouts(config.eval_samples, config.eval_tasks)
    sessions = max(config.rollouts_per_step, judged)
    with open_env(config, sessions=sessions) as env:
        goes_on = preflight.check_job(job, env, sessions=sessions)
        trainer = _trainer(job, env, metrics, stop)
        metrics.cut_back(_begun(job, goes_on))
        _learn(trainer, job, metrics, stop)
    numbers = _summary(metrics, config.steps)
    metrics.append("final", config.steps, numbers, datetime.now(UTC))
    if warning := flat_warning(numbers):
        say(warning)


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
    _judge(trainer, metrics, 0)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if stop.asked:
        raise Stopped
    _judge(trainer, metrics, job.config.steps)
    models.save_model(trainer.model, trainer.processing_class, job.out / "model")


def _begun(job: Job[GrpoConfig], goes_on: bool) -> int:
    """The step that the metrics are cut back to; an eval of other tasks or tools goes, too."""
    checkpoint = latest_complete_checkpoint(job.out)
    if checkpoint is None:
        return 0 if goes_on else -1
    return checkpoint_step(checkpoint) or 0


def _judge(trainer: Trainer, metrics: MetricsFile, step: int) -> None:
    """The eval at `step`, if it isn't there or scored nothing. Raises JobFailed: no rise then."""
    if metrics.reward_at(step) is None:
        metrics.forget("eval", step)
        trainer.judge()


def _summary(metrics: MetricsFile, steps: int) -> dict[str, Any]:
    """The numbers a runbook's `expect` speaks of."""
    before, after = metrics.find("eval", 0) or {}, metrics.find("eval", steps) or {}
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
