"""Writes what verl reads, runs verl as a child, and tells its numbers as every program does.

May be killed at any moment and started again: verl goes on from its newest whole checkpoint, and
the metrics are cut back to it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent_env.client import AgentEnv
from agent_env.errors import AtCapacity
from agent_env.training import verl
from agent_env.training._calls import form_of
from agent_env.training.config import ConfigError, VerlGrpoConfig
from agent_env.training.job import Job, JobFailed, next_command
from agent_env.training.metrics import MetricsFile
from agent_env.training.preflight.room import room_fault
from agent_env.training.preflight.source import source_faults
from agent_env.training.preflight.template import load_tokenizer
from agent_env.training.ray_job import check_trained_on, summary
from agent_env.training.serving import open_env, served_splits
from agent_env.training.stopping import StopRequest
from agent_env.training.verl import checkpoints, child, progress
from agent_env.training.verl.preflight import machine_faults
from agent_env.training.verl.reading import FORMS

LOSSES = {
    None: "token-mean",
    "dapo": "token-mean",
    "grpo": "seq-mean-token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
}
"""verl's name for how tokens are averaged."""


def run(job: Job[VerlGrpoConfig], _stop: StopRequest) -> None:
    """Train to the last step. A stop is raised at once: verl saves at its own times only."""
    if faults := [*source_faults(job.model_source, "config.model"), *_machine_faults(job.config)]:
        raise ConfigError(faults)
    config = job.config
    folder = job.out / "verl"
    folder.mkdir(parents=True, exist_ok=True)
    with open_env(config, sessions=config.sessions) as env:
        check_environment(job, env)
        tokenizer = load_tokenizer(job.model_source, "config.model")
        train, evals = _rows(env, config)
        settings = loop_settings(config, env, folder)
        wanted = verl_run(job, folder, call_format(config, tokenizer))
        check_fits(config, wanted, settings, env, train, tokenizer)
        verl.write_dataset(wanted.train_file, train)
        verl.write_dataset(wanted.val_file, evals)
        verl.write_loop_file(wanted.loop_file, settings)
        metrics = _train(job, wanted, folder)
    metrics.append("final", config.steps, summary(metrics, config.steps), datetime.now(UTC))


def own_ray() -> bool:
    """Whether verl is to start Ray itself: where no cluster is named."""
    return "RAY_ADDRESS" not in os.environ


def _machine_faults(config: VerlGrpoConfig) -> list[str]:
    return machine_faults(nodes=config.nodes, own_ray=own_ray())


def _rows(env: AgentEnv, config: VerlGrpoConfig) -> tuple[list[Any], list[Any]]:
    train = verl.rows(env, *served_splits(env, config, config.split))
    splits = served_splits(env, config, config.eval_split)
    evals = verl.rows(env, *splits, purpose="eval")
    most = config.eval_tasks
    return train, [row for row in evals if most is None or row["extra_info"]["index"] < most]


def check_environment(job: Job[VerlGrpoConfig], env: AgentEnv) -> None:
    """Raises ConfigError where the model, or the checkpoints in `out`, learned something else."""
    goes_on = checkpoints.settle(job.out) > 0
    splits = _splits(env, job.config)
    check_trained_on(job.model_source, env, splits, job.out, goes_on=goes_on)


def _splits(env: AgentEnv, config: VerlGrpoConfig) -> list[str]:
    named = (config.split, config.eval_split)
    return [split for names in named for split in served_splits(env, config, names)]


def check_fits(
    config: VerlGrpoConfig,
    wanted: verl.VerlRun,
    settings: verl.LoopSettings,
    env: AgentEnv,
    train: list[Any],
    tokenizer: Any,
) -> None:
    """As `verl.check`, and ConfigError where the server is too small even when nobody uses it."""
    try:
        verl.check(wanted, settings, env, train, tokenizer)
    except AtCapacity as error:
        if error.most is None:
            raise
        raise ConfigError([room_fault(config, settings.sessions, error.most)]) from None


def loop_settings(config: VerlGrpoConfig, env: AgentEnv, folder: Path) -> verl.LoopSettings:
    """What the rollouts keep to; one episode of each split is played for the scores' names."""
    return verl.LoopSettings(
        url=env.url,
        sessions=config.sessions,
        scores=verl.score_ids(env, _splits(env, config)),
        rollout_s=config.rollout_s,
        unscored_limit=config.max_unscored,
        unscored_rollouts=max(1, 4 * config.rollouts_per_step // config.workers),
        record=str(folder / "rollouts.jsonl"),
    )


def verl_run(job: Job[VerlGrpoConfig], folder: Path, format_: str) -> verl.VerlRun:
    """The config in verl's terms."""
    config = job.config
    asked: dict[str, Any] = {}
    if config.vllm:
        asked["gpu_memory_share"] = config.vllm.gpu_memory_share
    if config.lora:
        asked |= {"lora_rank": config.lora.rank, "lora_alpha": config.lora.alpha}
    return verl.VerlRun(
        model=job.model_source,
        train_file=folder / "train.parquet",
        val_file=folder / "eval.parquet",
        loop_file=folder / "loop.yaml",
        out=job.out,
        steps=config.steps,
        prompts_per_step=config.prompts_per_step,
        rollouts_per_prompt=config.rollouts_per_task,
        prompt_tokens=config.prompt_tokens,
        response_tokens=config.completion_tokens,
        replies=config.tool_rounds + 1,
        learning_rate=config.learning_rate,
        temperature=config.temperature,
        max_grad_norm=config.max_grad_norm,
        kl_weight=config.beta,
        loss=LOSSES[config.loss_type],
        scaled=config.scale_rewards != "none",
        call_format=format_,
        gpus=config.gpus,
        nodes=config.nodes,
        workers=config.workers,
        save_steps=config.save_steps,
        keep_checkpoints=config.keep_checkpoints,
        eval_steps=config.eval_steps,
        eval_samples=config.eval_samples,
        own_ray=own_ray(),
        seed=config.seed,
        reporters=config.report_to,
        thinking=config.thinking,
        **asked,
    )


def call_format(config: VerlGrpoConfig, tokenizer: Any) -> str:
    """verl's name for how the model writes calls. Raises ConfigError where nothing tells."""
    if config.call_format is not None:
        return config.call_format
    form = form_of(str(tokenizer.chat_template))
    named: list[str] = [name for name, of in FORMS.items() if of == form]
    if not named:
        raise ConfigError(
            [
                "config.call_format: the chat template shows no form of calls that we know; name"
                " one of verl's, such as gpt-oss or gemma4"
            ]
        )
    return named[0]


def _train(job: Job[VerlGrpoConfig], wanted: verl.VerlRun, folder: Path) -> MetricsFile:
    """Run verl to its end, from its newest whole checkpoint on. Raises JobFailed."""
    step, steps = checkpoints.settle(job.out), job.config.steps
    metrics = MetricsFile(job.metrics, max_steps=steps)
    metrics.cut_back(step)
    record, told = folder / "rollouts.jsonl", folder / "metrics.jsonl"
    lines = progress.Progress(told, record, metrics)
    # verl saves a step before its eval, and may have died between.
    due = step % (wanted.eval_steps or steps) == 0 or step == steps
    evaluated = metrics.find("eval", step) is not None
    progress.cut_back(record, step, evaluated=evaluated)
    lines.catch_up(step)
    told.unlink(missing_ok=True)
    if step < steps or not evaluated:
        words = verl.overrides(replace(wanted, eval_first=due and not evaluated))
        status = child.run(words, folder=folder, metrics=told, look=lines.look)
        if status:
            lost = progress.losses(record)
            why = f": {lost}" if lost else "; its own words are above"
            raise JobFailed(f"verl ended with exit status {status}{why}; {next_command()}")
    checkpoints.export(job.out, steps)
    return metrics
