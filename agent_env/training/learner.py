"""What GRPO trains: the model from wherever it comes, and the trainer set up for a config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback
from trl.chat_template_utils import (
    get_training_chat_template,
    is_chat_template_prefix_preserving,
)

from agent_env.training import models, unsloth
from agent_env.training.config import (
    GrpoConfig,
    ProgramConfig,
    SftConfig,
    TrainingConfig,
)
from agent_env.training.guard import UnscoredGuard
from agent_env.training.metrics import MetricsFile
from agent_env.training.stopping import Stopped, StopRequest
from agent_env.training.trainer import Trainer, arguments, eval_arguments, training_order

GUARDED_STEPS = 4
"""Steps that the share of lost rollouts is taken of: an outage in one or two is lived through."""


def load(source: str, config: ProgramConfig) -> tuple[Any, Any]:
    """The model and its tokenizer, through unsloth if the config says so."""
    if config.unsloth is None:
        models.settle_torch()
        return models.load_model(source, four_bit=bool(config.lora and config.lora.four_bit))
    return unsloth.load_model(source, config.unsloth, seed=config.seed)


def peft_config(config: ProgramConfig) -> Any:
    """The adapters that the trainer is to put on the model; None where unsloth did, or none."""
    return None if config.lora is None else models.adapters(config.lora)


def load_student(source: str, config: SftConfig) -> tuple[Any, Any]:
    """The same for the warm start's own loop: adapters on, and sparing with a GPU's memory."""
    model, tokenizer = load(source, config)
    if config.lora is not None:
        model = models.with_adapters(model, config.lora)
    if config.unsloth is None and torch.cuda.is_available():
        models.save_memory(model)
    return model, tokenizer


def rendering(tokenizer: Any, config: ProgramConfig) -> dict[str, Any]:
    """What the chat template is told so that it shows what the trainer will show the model."""
    told: dict[str, Any] = {}
    if not is_chat_template_prefix_preserving(tokenizer):
        told["chat_template"] = get_training_chat_template(tokenizer)
    return told if config.thinking is None else told | {"enable_thinking": config.thinking}


def grpo_trainer(
    config: GrpoConfig,
    model: Any,
    tokenizer: Any,
    factory: Any,
    *,
    rows: Any,
    eval_rows: Any,
    out: Path,
    metrics: MetricsFile,
    stop: StopRequest,
) -> Trainer:
    """The trainer, ready to evaluate and to train."""
    evals = eval_arguments(samples=config.eval_samples, tasks=len(eval_rows), batch=config.batch)
    settings = step_arguments(config) | _saving(config) | evals
    trainer = Trainer(
        stop=stop,
        metrics=metrics,
        guard=guard(config),
        peft_config=peft_config(config),
        model=model,
        processing_class=tokenizer,
        environment_factory=factory,
        train_dataset=planned_rows(config, rows),
        eval_dataset=eval_rows,
        args=unsloth.grpo_config(**arguments(config, out, **settings)),
    )
    trainer.add_callback(MissedEval(trainer, metrics))
    return trainer


def guard(config: TrainingConfig) -> UnscoredGuard:
    """The end of a run that trains on too little."""
    return UnscoredGuard(config.max_unscored, GUARDED_STEPS * config.rollouts_per_step)


def planned_rows(config: TrainingConfig, rows: Any) -> Any:
    """The rows of the whole training in order, so that it is one epoch and never shuffled."""
    needed = config.steps * config.rollouts_per_step // config.rollouts_per_task
    return rows.select(training_order(len(rows), needed, config.seed))


def step_arguments(config: TrainingConfig) -> dict[str, Any]:
    """A step: its rollouts, its groups, its update."""
    at_once = config.train_batch or config.rollouts_per_step
    return {
        "max_steps": config.steps,
        "num_generations": config.rollouts_per_task,
        "per_device_train_batch_size": at_once,
        "gradient_accumulation_steps": config.rollouts_per_step // at_once,
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": config.schedule,
        "warmup_steps": 0,
        "max_grad_norm": config.max_grad_norm,
        "beta": config.beta,
        **_told(loss_type=config.loss_type, scale_rewards=config.scale_rewards),
    }


def _told(**arguments: Any) -> dict[str, Any]:
    """Those that have a value: naming a default isn't always the same as leaving it out."""
    return {name: value for name, value in arguments.items() if value is not None}


def _saving(config: GrpoConfig) -> dict[str, Any]:
    return {
        "save_strategy": "steps",
        "save_steps": config.save_steps,
        "save_total_limit": config.keep_checkpoints,
        "eval_strategy": "no" if config.eval_steps is None else "steps",
        "eval_steps": config.eval_steps,
    }


class MissedEval(TrainerCallback):  # type: ignore[misc]
    """An eval that a stop cut short is made up for when the run goes on from its checkpoint."""

    def __init__(self, trainer: Trainer, metrics: MetricsFile) -> None:
        self._trainer = trainer
        self._metrics = metrics

    def on_train_begin(self, args: Any, state: Any, _control: Any, **_rest: Any) -> None:
        step = state.global_step
        due = step and args.eval_strategy == "steps" and step % args.eval_steps == 0
        if due and self._metrics.find("eval", step) is None:
            self._trainer.evaluate()
            if self._trainer.stop.asked:  # cut short again, with no step since its checkpoint
                raise Stopped
