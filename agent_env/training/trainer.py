"""TRL's GRPO trainer the way our programs use it.

Import it only when the process is settled, and unsloth, if it is used, imported: unsloth rewrites
the class that stands below ours.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, TrainerCallback
from transformers.integrations import TrackioCallback, WandbCallback
from trl import GRPOTrainer

from agent_env.training import trained_on
from agent_env.training.config import ProgramConfig
from agent_env.training.guard import UNTOLD, UnscoredGuard, reasons
from agent_env.training.job import JobFailed
from agent_env.training.metrics import MetricsFile
from agent_env.training.progress import Progress, StopAtStepEnd
from agent_env.training.randomness import own_randomness
from agent_env.training.reporting import run_name
from agent_env.training.rollouts import Recorder, Rollout, Tally, tally
from agent_env.training.stopping import Stopped, StopRequest
from agent_env.training.unsloth import grpo_config


class Trainer(GRPOTrainer):  # type: ignore[misc]
    """Records every rollout, and keeps evals apart from the training around them."""

    def __init__(
        self,
        *,
        stop: StopRequest,
        metrics: MetricsFile,
        guard: UnscoredGuard | None = None,
        callbacks: Sequence[TrainerCallback] = (),
        **arguments: Any,
    ) -> None:
        recorder = Recorder()
        self.stop = stop
        self.rollouts: list[Rollout] = []
        self.progress = Progress(metrics, recorder, guard=guard)
        ours = [self.progress, StopAtStepEnd(stop), *callbacks]
        super().__init__(reward_funcs=[recorder], callbacks=ours, **arguments)
        told = self.args.chat_template_kwargs or {}
        self.progress.may_think = told.get("enable_thinking") is not False
        self.progress.tokens = self.args.max_completion_length
        self.progress.group = self.args.num_generations
        recorder.ends = frozenset(self._ends())
        self.remove_callback(PrinterCallback)
        logging.getLogger("trl.trainer.grpo_trainer").addFilter(_is_no_dump)

    def train(self, resume_from_checkpoint: str | None = None, **rest: Any) -> Any:
        """Train; a request to stop is answered with a checkpoint at a step's end."""
        with self.stop.held():
            return super().train(resume_from_checkpoint=resume_from_checkpoint, **rest)

    def evaluate(self, *arguments: Any, **named: Any) -> dict[str, float]:
        """Evaluate and write the line; `rollouts` has what it saw.

        A request to stop cuts it short, without a line, and a training around it saves and ends.

        Raises Stopped when it was asked to stop outside of training.
        """
        self.progress.recorder.take()
        self._open_reports()
        began = time.monotonic()
        try:
            with self.stop.held(False), own_randomness(self.args.seed):
                numbers: dict[str, float] = super().evaluate(*arguments, **named)
        except Stopped:
            if not self.is_in_train:
                raise
            self.control.should_save = self.control.should_training_stop = True
            return {}
        self.rollouts = self.progress.recorder.take()
        self.progress.evaluated(self.state.global_step, tally(self.rollouts), began)
        return numbers

    def _open_reports(self) -> None:
        """An eval reports before its first log, and trackio's report closes when training ends."""
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, WandbCallback | TrackioCallback):
                callback.on_train_begin(self.args, self.state, self.control, model=self.model)

    def _save_checkpoint(self, *arguments: Any) -> None:
        """What it was trained on goes first: a checkpoint that is complete has it."""
        trained_on.carry_to_checkpoint(Path(self.args.output_dir), self.state.global_step)
        super()._save_checkpoint(*arguments)

    def create_model_card(self, *_arguments: Any, **_named: Any) -> None:
        """No card: the run's own record says more than the trainer's boilerplate."""

    def _ends(self) -> Iterator[int]:
        """The tokens that end a completion: the model's own, the tokenizer's, and padding."""
        ends = self.model.generation_config.eos_token_id
        yield from ends if isinstance(ends, list) else [ends]
        yield from (self.processing_class.eos_token_id, self.processing_class.pad_token_id)

    def judge(self) -> Tally:
        """Evaluate, and return our own count instead of the trainer's mean of batch means.

        Raises JobFailed when nothing was scored.
        """
        self.evaluate()
        return self.counted()

    def counted(self) -> Tally:
        """The last eval's count. Raises JobFailed, with the reasons, when nothing was scored."""
        counted = tally(self.rollouts)
        if not counted.scored:
            why = reasons(rollout.lost or UNTOLD for rollout in self.rollouts)
            raise JobFailed(f"none of the eval's {counted.rollouts} rollouts was scored: {why}")
        return counted


def arguments(config: ProgramConfig, out: Path, **more: Any) -> dict[str, Any]:
    """What the trainer is told; `more` wins."""
    gpu = torch.cuda.is_available()
    common = {
        "output_dir": str(out),
        "seed": config.seed,
        "temperature": config.temperature,
        "max_completion_length": config.completion_tokens,
        "max_tool_calling_iterations": config.tool_rounds,
        "report_to": list(config.report_to) or "none",
        "run_name": run_name(out),
        "logging_steps": 1,
        "disable_tqdm": True,
        "use_cpu": not gpu,
        "bf16": gpu,
        "gradient_checkpointing": gpu,
        "dataloader_pin_memory": False,
        # The order of the rows is decided here, in `training_order`: a run that goes on from a
        # checkpoint then sees the rows it would have seen.
        "shuffle_dataset": False,
    }
    return common | _generating(config) | more


def _generating(config: ProgramConfig) -> dict[str, Any]:
    """Who generates, and whether it thinks first; empty where the trainer's defaults do."""
    told: dict[str, Any] = {}
    if config.thinking is not None:
        told["chat_template_kwargs"] = {"enable_thinking": config.thinking}
    if config.vllm is not None:
        told |= {
            "use_vllm": True,
            "vllm_mode": "colocate",
            "vllm_gpu_memory_utilization": config.vllm.gpu_memory_share,
            "vllm_max_model_length": config.vllm.max_seq_tokens,
        }
    return told


def eval_arguments(*, samples: int, tasks: int, batch: int) -> dict[str, Any]:
    """Rollouts of an eval: whole tasks in a batch, no batch larger than the eval."""
    at_once = min(tasks, max(1, batch // samples))
    return {"num_generations_eval": samples, "per_device_eval_batch_size": at_once * samples}


def evaluator(
    config: ProgramConfig,
    model: Any,
    tokenizer: Any,
    factory: Any,
    rows: Any,
    *,
    samples: int,
    out: Path,
    metrics: MetricsFile,
    stop: StopRequest,
    peft_config: Any = None,
) -> Trainer:
    """A trainer that is never going to train; `samples` rollouts a row."""
    evals = eval_arguments(samples=samples, tasks=len(rows), batch=config.batch)
    never = {
        "max_steps": 1,
        "save_strategy": "no",
        "num_generations": 2,
        "per_device_train_batch_size": 2,
    }
    trainer = Trainer(
        stop=stop,
        metrics=metrics,
        model=model,
        processing_class=tokenizer,
        environment_factory=factory,
        train_dataset=rows,
        eval_dataset=rows,
        peft_config=peft_config,
        args=grpo_config(**arguments(config, out, **never, **evals)),
    )
    # It has no step of its own: what it judges is the end of something.
    trainer.state.global_step = metrics.max_steps
    return trainer


def _is_no_dump(record: logging.LogRecord) -> bool:
    """False for the trainer's dump of an unscored rollout: we count those, and keep their text."""
    return "All reward functions returned None" not in record.getMessage()


def training_order(tasks: int, needed: int, seed: int) -> list[int]:
    """Indices of `needed` tasks: shuffled passes over all of them, each with its own order."""
    rng = random.Random(seed)  # noqa: S311 - an order, not a secret
    order: list[int] = []
    while len(order) < needed:
        order += rng.sample(range(tasks), tasks)
    return order[:needed]
