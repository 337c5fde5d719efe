"""What GRPO under SkyRL is told."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from agent_env.training.config.base import Count, Positive, Rate
from agent_env.training.config.dividing import undivided
from agent_env.training.config.grpo import TrainingConfig
from agent_env.training.config.names import Names

_NOT_SKYRLS = {
    "unsloth": "this is another trainer: use the program grpo",
    "loss_type": "SkyRL has its own, a mean over tokens",
}


class SkyrlGrpoConfig(TrainingConfig):
    """GRPO with SkyRL on one machine with NVIDIA GPUs; vLLM generates on the same ones."""

    takes_many: ClassVar[bool] = True
    under_trl: ClassVar[bool] = False

    eval_split: Names = "coarse-eval"
    """The tasks of the evals."""
    eval_steps: Count | None = None
    """Also evaluate each so many steps; only before and after by default."""
    eval_samples: Count = 4
    """Rollouts of each task in an eval."""
    eval_tasks: Count | None = None
    """Only the first tasks of each eval split; all of them by default."""
    save_steps: Count = 10
    """Steps between two checkpoints."""
    keep_checkpoints: Annotated[int, Field(ge=2)] = 2
    """At least two: the newest may be half written when the process dies."""
    learning_rate: Rate = 1e-6
    schedule: Literal["linear", "constant"] = "constant"
    scale_rewards: Literal["group", "none"] = "none"
    """`group` divides advantages by the group's deviation, which a lost rollout makes smaller."""
    train_batch: Count = 8
    """Rollouts in one backward pass, on all GPUs together."""
    completion_tokens: Count = 1024
    """Limit of one rollout's own tokens and tool results; the last reply may go beyond it."""
    prompt_tokens: Count = 2048
    """Limit of a prompt with its tools; a longer one is refused before the model is loaded."""
    gpus: Count = 1
    """GPUs of the machine that are used."""
    rollout_s: Positive = 600.0
    """A rollout that takes longer is unscored."""

    @model_validator(mode="after")
    def _under_skyrl(self) -> Self:
        for name, why in _NOT_SKYRLS.items():
            if getattr(self, name):
                raise ValueError(f"{name}: {why}; leave it out")
        if self.lora and (self.lora.four_bit or self.lora.targets):
            raise ValueError("lora: SkyRL takes rank and alpha only")
        if "trackio" in self.report_to:
            raise ValueError("report_to: SkyRL reports to wandb, not to trackio")
        return self

    @model_validator(mode="after")
    def _gpus_divide(self) -> Self:
        if wrong := undivided("gpus", self.gpus, "train_batch", self.train_batch):
            raise ValueError(wrong)
        return self
