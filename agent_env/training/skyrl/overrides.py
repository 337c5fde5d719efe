"""What `skyrl.train.entrypoints.main_base` is told on its command line: GRPO on our generator.

Every setting here differs from SkyRL's default, or would be filled in by a missing one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent_env.training.skyrl.settings import ENV_CLASS, EnvSettings

ENTRY_POINT = "agent_env.training.skyrl.experiment"


@dataclass(frozen=True, kw_only=True)
class SkyrlRun:
    """One run of SkyRL on one machine. Lengths in tokens."""

    model: str
    train_file: Path
    val_file: Path
    out: Path
    """Where its checkpoints, models and logs go."""
    env: EnvSettings
    steps: int
    epochs: int
    """Passes over the training file that give so many steps, and one for each start: SkyRL takes
    a checkpoint at an epoch's end for an epoch without rows."""
    only_ends: bool = False
    """Whether its last step is behind it: `epochs` then are those begun, and nothing is saved
    but the model."""
    prompts_per_step: int
    rollouts_per_prompt: int
    micro_batch: int
    """Rollouts in one backward pass of one GPU."""
    prompt_tokens: int
    completion_tokens: int
    """All of a rollout after its prompt: the model's tokens and the tools'."""
    max_turns: int
    """Replies of the model in one rollout; the calls of the last are carried out."""
    eval_rows: int
    """All in one batch: SkyRL would add up what isn't called a mean over several."""
    eval_samples: int = 1
    eval_steps: int | None = None
    eval_first: bool = True
    save_steps: int = 10
    keep_checkpoints: int = 2
    learning_rate: float = 1e-6
    schedule: str = "constant"
    temperature: float = 1.0
    max_grad_norm: float = 1.0
    kl_weight: float = 0.0
    """Weight of the KL term in the loss; 0 keeps no reference model."""
    scale_by_group: bool = False
    lora_rank: int = 0
    lora_alpha: int = 16
    gpus: int = 1
    gpu_memory_share: float = 0.6
    """What vLLM may take of a GPU; the trainer needs the rest."""
    seed: int = 0
    wandb: bool = False
    thinking: bool | None = None


def overrides(run: SkyrlRun) -> list[str]:
    """The command line's words, `key=value`."""
    parts = (_data(run), _model(run), _algorithm(run), _steps(run), _generator(run), _env(run))
    words = [f"{key}={_value(value)}" for part in parts for key, value in part]
    return [f"trainer.override_entrypoint={ENTRY_POINT}", *words]


Settings = Iterator[tuple[str, Any]]


def _data(run: SkyrlRun) -> Settings:
    yield "data.train_data", [str(run.train_file)]
    yield "data.val_data", [str(run.val_file)]
    # Worker processes would outlive a step for a table that fits in memory.
    yield "data.dataloader.num_workers", 0
    yield "trainer.max_prompt_length", run.prompt_tokens


def _model(run: SkyrlRun) -> Settings:
    yield "trainer.policy.model.path", run.model
    yield "trainer.policy.model.lora.rank", run.lora_rank
    yield "trainer.policy.model.lora.alpha", run.lora_alpha
    yield "trainer.policy.model.lora.lora_sync_path", str(run.out / "lora")
    yield "trainer.placement.policy_num_gpus_per_node", run.gpus
    yield "trainer.placement.ref_num_gpus_per_node", run.gpus
    here = "generator.inference_engine"
    yield f"{here}.num_engines", run.gpus
    yield f"{here}.gpu_memory_utilization", run.gpu_memory_share
    room = run.prompt_tokens + 2 * run.completion_tokens
    yield f"{here}.engine_init_kwargs.max_model_len", room


def _algorithm(run: SkyrlRun) -> Settings:
    here = "trainer.algorithm"
    yield f"{here}.advantage_estimator", "grpo"
    yield f"{here}.grpo_norm_by_std", run.scale_by_group
    yield f"{here}.use_kl_loss", run.kl_weight > 0
    yield f"{here}.kl_loss_coef", run.kl_weight
    here = "trainer.policy.optimizer_config"
    yield f"{here}.lr", run.learning_rate
    yield f"{here}.max_grad_norm", run.max_grad_norm
    constant = run.schedule == "constant"
    yield f"{here}.scheduler", "constant_with_warmup" if constant else run.schedule


def _steps(run: SkyrlRun) -> Settings:
    yield "trainer.max_training_steps", run.steps
    yield "trainer.epochs", run.epochs
    yield "trainer.train_batch_size", run.prompts_per_step
    yield "trainer.policy_mini_batch_size", run.prompts_per_step
    yield "trainer.micro_train_batch_size_per_gpu", run.micro_batch
    yield "trainer.micro_forward_batch_size_per_gpu", run.micro_batch
    yield "trainer.eval_batch_size", run.eval_rows
    yield "trainer.eval_before_train", run.eval_first
    yield "trainer.eval_interval", run.eval_steps or run.steps
    yield "trainer.ckpt_interval", 0 if run.only_ends else run.save_steps
    yield "trainer.max_ckpts_to_keep", run.keep_checkpoints
    yield "trainer.ckpt_path", str(run.out / "checkpoints")
    yield "trainer.resume_mode", "latest"
    # An interval would bring a model at the end of each epoch, too; ours comes at the end.
    yield "trainer.hf_save_interval", -1
    yield "trainer.export_path", str(run.out / "export")
    yield "trainer.log_path", str(run.out / "logs")
    yield "trainer.dump_eval_results", False
    yield "trainer.logger", "wandb" if run.wandb else "console"
    yield "trainer.seed", run.seed


def _generator(run: SkyrlRun) -> Settings:
    yield "generator.n_samples_per_prompt", run.rollouts_per_prompt
    yield "generator.eval_n_samples_per_prompt", run.eval_samples
    # SkyRL's default is one turn: no model would ever see a tool's answer.
    yield "generator.max_turns", run.max_turns
    yield "generator.max_input_length", run.prompt_tokens + run.completion_tokens
    for kind in ("sampling_params", "eval_sampling_params"):
        yield f"generator.{kind}.max_generate_length", run.completion_tokens
        yield f"generator.{kind}.temperature", run.temperature
    if run.thinking is not None:
        yield "generator.chat_template_kwargs.enable_thinking", run.thinking


def _env(run: SkyrlRun) -> Settings:
    yield "environment.env_class", ENV_CLASS
    for name, value in asdict(run.env).items():
        yield f"generator.agent_env.{name}", value


def _value(value: Any) -> str:
    """In YAML, as SkyRL reads it; quoted where a word could be taken for something else."""
    return json.dumps(value)
