"""Writes SkyRL's dataset and settings, and runs SkyRL's own entry point as a child.

May be killed at any moment and started again: SkyRL goes on from its latest whole checkpoint, and
the metrics are cut back to it. A stop is answered with a checkpoint at the end of the step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agent_env.client import AgentEnv
from agent_env.training import skyrl, trained_on
from agent_env.training.config import ConfigError
from agent_env.training.config.skyrl import SkyrlGrpoConfig
from agent_env.training.job import EXIT_STOPPED, Job, JobFailed, next_command
from agent_env.training.metrics import MetricsFile
from agent_env.training.owner import job_owner
from agent_env.training.preflight.gpu import gpu_faults
from agent_env.training.preflight.source import source_faults
from agent_env.training.preflight.template import load_tokenizer
from agent_env.training.progress import say
from agent_env.training.ray_job import check_trained_on, summary
from agent_env.training.serving import open_env, served_splits
from agent_env.training.skyrl import checkpoints, child
from agent_env.training.skyrl.overrides import SkyrlRun, overrides
from agent_env.training.stopping import Stopped, StopRequest

JUDGED_STEPS = 4
"""The share of unscored rollouts is taken over so many steps' worth."""
_PACKAGES = ("skyrl", "skyrl_gym", "flash_attn")


def run(job: Job[SkyrlGrpoConfig], stop: StopRequest) -> None:
    """Train to the last step, or raise Stopped after a checkpoint."""
    if faults := list(machine_faults(job)):
        raise ConfigError(faults)
    config = job.config
    metrics = MetricsFile(job.metrics, max_steps=config.steps)
    tokenizer = load_tokenizer(job.model_source, "config.model")
    with open_env(config, sessions=max(config.rollouts_per_step, config.batch)) as env:
        wanted = prepare(job, env, tokenizer)
        step = latest_step(wanted.out)
        # Without a checkpoint the first eval is made again, too.
        metrics.cut_back(step or -1)
        evaluated = metrics.find("eval", step) is not None
        train(replace(wanted, eval_first=is_due(wanted, step) and not evaluated), job, stop)
    metrics.append("final", config.steps, summary(metrics, config.steps), datetime.now(UTC))


def machine_faults(job: Job[SkyrlGrpoConfig]) -> Iterator[str]:
    """What keeps this machine from training; nothing of SkyRL is imported."""
    yield from gpu_faults(["program: skyrl_grpo"])
    yield from source_faults(job.model_source, "config.model")
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        yield (
            f"program: skyrl_grpo: not installed here: {', '.join(missing)}; on a box `pins:"
            " skyrl`, and flash-attn 2.8.3 built against its torch"
        )


def prepare(job: Job[SkyrlGrpoConfig], env: AgentEnv, tokenizer: Any) -> SkyrlRun:
    """Write the datasets, and look for what would fail later.

    Raises ConfigError, SessionError.
    """
    config, folder = job.config, job.out / "skyrl"
    groups = [served_splits(env, config, names) for names in (config.split, config.eval_split)]
    splits, goes_on = [split for group in groups for split in group], latest_step(folder) > 0
    check_trained_on(job.model_source, env, splits, folder, goes_on=goes_on)
    try:
        rows = [
            skyrl.skyrl_rows(env, *group, tokenizer=tokenizer, limit=limit)
            for group, limit in zip(groups, (None, config.eval_tasks), strict=True)
        ]
    except ValueError as error:
        raise ConfigError([f"config.model: {error}"]) from None
    wanted = skyrl_run(job, env.url, folder, tasks=len(rows[0]), evals=len(rows[1]))
    for note in skyrl.check(
        wanted.env,
        rollouts=config.rollouts_per_step,
        prompts=[row["prompt"] for group in rows for row in group],
        tokenizer=tokenizer,
        max_prompt_length=config.prompt_tokens,
        prompts_per_step=wanted.prompts_per_step,
    ):
        say(f"config.rollouts_per_step: {note}")
    for path, group in zip((wanted.train_file, wanted.val_file), rows, strict=True):
        skyrl.write_dataset(path, group)
    return wanted


def skyrl_run(
    job: Job[SkyrlGrpoConfig], url: str, folder: Path, *, tasks: int, evals: int
) -> SkyrlRun:
    """The config in SkyRL's terms."""
    config, only_ends = job.config, latest_step(folder) == job.config.steps
    prompts = config.rollouts_per_step // config.rollouts_per_task
    epochs = config.steps / max(1, tasks // prompts)
    asked: dict[str, Any] = {}
    if config.vllm:
        asked["gpu_memory_share"] = config.vllm.gpu_memory_share
    lora = (config.lora.rank, config.lora.alpha) if config.lora else (0, 16)
    return SkyrlRun(
        model=job.model_source,
        train_file=folder / "train.parquet",
        val_file=folder / "eval.parquet",
        out=folder,
        env=skyrl.EnvSettings(
            url=url,
            owner=job_owner() if config.env_url else "",
            deadline_s=config.rollout_s,
            max_unscored=config.max_unscored,
            judged_rollouts=JUDGED_STEPS * config.rollouts_per_step,
            metrics_file=str(job.metrics),
            stop_file=str(folder / "stop"),
            model_folder=str(folder / "model"),
        ),
        steps=config.steps,
        epochs=math.floor(epochs) if only_ends else math.ceil(epochs) + 1,
        only_ends=only_ends,
        prompts_per_step=prompts,
        rollouts_per_prompt=config.rollouts_per_task,
        micro_batch=config.train_batch // config.gpus,
        prompt_tokens=config.prompt_tokens,
        completion_tokens=config.completion_tokens,
        max_turns=config.tool_rounds + 1,
        eval_rows=evals,
        eval_samples=config.eval_samples,
        eval_steps=config.eval_steps,
        save_steps=config.save_steps,
        keep_checkpoints=config.keep_checkpoints,
        learning_rate=config.learning_rate,
        schedule=config.schedule,
        temperature=config.temperature,
        max_grad_norm=config.max_grad_norm,
        kl_weight=config.beta,
        scale_by_group=config.scale_rewards == "group",
        lora_rank=lora[0],
        lora_alpha=lora[1],
        gpus=config.gpus,
        seed=config.seed,
        wandb="wandb" in config.report_to,
        thinking=config.thinking,
        **asked,
    )


def latest_step(folder: Path) -> int:
    """The step of SkyRL's newest whole checkpoint, from which it goes on; 0 without one."""
    return checkpoints.settle(folder / "checkpoints")


def is_due(wanted: SkyrlRun, step: int) -> bool:
    """Whether there is an eval at that step; SkyRL saves before it, and may die between."""
    return step == wanted.steps or step % (wanted.eval_steps or wanted.steps) == 0


def train(wanted: SkyrlRun, job: Job[SkyrlGrpoConfig], stop: StopRequest) -> None:
    """Run SkyRL to its end. Raises Stopped, JobFailed."""
    left, model = Path(wanted.env.model_folder), job.out / "model"
    is_left = left.exists() or model.exists()
    if not wanted.only_ends or wanted.eval_first or not is_left:
        status = child.run(overrides(wanted), stop, Path(wanted.env.stop_file))
        if status == EXIT_STOPPED or (status and stop.asked):
            raise Stopped
        if status:
            raise JobFailed(f"SkyRL ended with exit status {status}; {next_command()}")
    if not model.exists() and left.exists():
        trained_on.carry(wanted.out, left)
        left.rename(model)
