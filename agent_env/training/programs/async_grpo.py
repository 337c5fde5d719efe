"""May be killed at any moment and started again: it goes on from the latest complete checkpoint
under `out` and cuts the metrics back to it. What was under way then is rolled out anew, so the
numbers of a disturbed run are not those of an undisturbed one.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import AutoTokenizer
from trl.experimental.async_grpo.vllm_client import VLLMClient

from agent_env.client import AgentEnv
from agent_env.training import learner, models, preflight, unsloth
from agent_env.training.async_trainer import AsyncTrainer
from agent_env.training.checkpoints import checkpoint_step, latest_complete_checkpoint
from agent_env.training.config import AsyncGrpoConfig
from agent_env.training.job import Job, JobFailed
from agent_env.training.metrics import MetricsFile
from agent_env.training.progress import say
from agent_env.training.rollout_worker import STALE_AFTER_S, EpisodeLog, WorkerFactory
from agent_env.training.serving import environments, open_env, served_splits, task_rows
from agent_env.training.stopping import Stopped, StopRequest
from agent_env.training.summary import flat_warning, training_numbers
from agent_env.training.trainer import arguments

VLLM_WAIT_S = 240.0
"""For a vLLM server that is still loading its model."""
_NOT_ASYNC = frozenset({"beta", "shuffle_dataset"})


def run(job: Job[AsyncGrpoConfig], stop: StopRequest) -> None:
    """Train to the last step, or raise Stopped after a checkpoint."""
    config = job.config
    metrics = MetricsFile(job.metrics, max_steps=config.steps)
    with open_env(config, sessions=config.inflight) as env:
        preflight.check_job(job, env, sessions=config.inflight)
        if config.server_url:
            wait_for_vllm(config.server_url)
        learn(async_trainer(job, env, metrics, stop), job, metrics, stop)
    numbers = _summary(metrics)
    metrics.append("final", config.steps, numbers, datetime.now(UTC))
    if warning := flat_warning(numbers):
        say(warning)


def async_trainer(
    job: Job[AsyncGrpoConfig],
    env: AgentEnv,
    metrics: MetricsFile,
    stop: StopRequest,
    **more: Any,
) -> AsyncTrainer:
    """The trainer, ready to train; `more` is for it, too."""
    config, episodes = job.config, job.out / "episodes.jsonl"
    factory = environments(env, config, config.split)
    model, tokenizer = _loaded(job)
    return AsyncTrainer(
        stop=stop,
        metrics=metrics,
        episodes=EpisodeLog(episodes),
        guard=learner.guard(config),
        model=model,
        processing_class=tokenizer,
        environment_factory=WorkerFactory(factory, stale_after_s=STALE_AFTER_S, episodes=episodes),
        train_dataset=learner.planned_rows(
            config, task_rows(env, served_splits(env, config, config.split))
        ),
        args=unsloth.async_config(**_arguments(config, job.out)),
        **more,
    )


def learn(
    trainer: AsyncTrainer, job: Job[AsyncGrpoConfig], metrics: MetricsFile, stop: StopRequest
) -> None:
    """Train from the latest checkpoint on, and save the model. Raises Stopped, JobFailed."""
    checkpoint = latest_complete_checkpoint(job.out)
    if checkpoint is not None:
        _check_rollout_state(checkpoint)
    metrics.cut_back((checkpoint_step(checkpoint) or 0) if checkpoint else 0)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if stop.asked:
        raise Stopped
    models.save_model(trainer.model, trainer.processing_class, job.out / "model")


def wait_for_vllm(url: str, seconds: float = VLLM_WAIT_S) -> None:
    """Before the model is loaded. Raises JobFailed with the command that starts the server."""
    PartialState()  # the trainer's own doing; the client's log needs it
    try:
        VLLMClient(url, seconds).wait_for_server_ready()
    except TimeoutError:
        raise JobFailed(
            f"no vLLM server answers at {url} within {seconds:g} s: start it with "
            "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL "
            '--weight-transfer-config \'{"backend": "nccl"}\', MODEL as this job\'s'
        ) from None


def _loaded(job: Job[AsyncGrpoConfig]) -> tuple[Any, Any]:
    """TRL loads a model by its name; unsloth's is loaded already."""
    source = job.model_source
    if job.config.unsloth is not None:
        return unsloth.load_model(source, job.config.unsloth, seed=job.config.seed)
    return source, AutoTokenizer.from_pretrained(source, padding_side="left")


def _arguments(config: AsyncGrpoConfig, out: Path) -> dict[str, Any]:
    server = {"vllm_server_base_url": config.server_url} if config.server_url else {}
    more = learner.step_arguments(config) | {
        "save_strategy": "steps",
        "save_steps": config.save_steps,
        "save_total_limit": config.keep_checkpoints,
        "max_inflight_tasks": config.inflight,
        "max_staleness": config.max_staleness,
        # What waits longer is thrown away: better to hold generation back.
        "queue_maxsize": config.max_staleness * config.rollouts_per_step,
        "heartbeat_stale_after_s": STALE_AFTER_S,
        # A step is so many rollouts, not so many tokens.
        "token_budget": 0,
    }
    told = arguments(config, out, **more, **server)
    return {name: value for name, value in told.items() if name not in _NOT_ASYNC}


def _check_rollout_state(checkpoint: Path) -> None:
    """Without it the trainer would begin the dataset anew, and say so in a warning only."""
    path = checkpoint / "rollout_state.json"
    try:
        json.loads(path.read_text())["prompt_index"]
    except (OSError, ValueError, KeyError, TypeError):
        raise JobFailed(
            f"{path} is missing or cut short: remove {checkpoint} to go on from the one before"
        ) from None


def _summary(metrics: MetricsFile) -> dict[str, Any]:
    """The numbers a runbook's `expect` speaks of."""
    lines = [line for line in metrics.lines() if line["kind"] == "train"]
    lost = [line.get("unscored") for line in lines]
    unscored = sum(count for count in lost if isinstance(count, int))
    return training_numbers(lines) | {"unscored": unscored}
