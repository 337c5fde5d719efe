"""What GRPO is told."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from agent_env.training.config.base import Count, Positive, ProgramConfig, Rate, Share
from agent_env.training.config.dividing import undivided
from agent_env.training.config.names import Names


class TrainingConfig(ProgramConfig):
    """What a GRPO step is made of."""

    split: Names = "coarse-train"
    """The tasks to train on."""
    steps: Count = 60
    """Training steps, each one update of the weights."""
    rollouts_per_step: Count = 64
    """Of all tasks of a step together."""
    rollouts_per_task: Annotated[int, Field(ge=2)] = 16
    """The group over which advantages are formed."""
    train_batch: Count | None = None
    """Rollouts in one backward pass; all of a step's by default."""
    learning_rate: Rate = 7e-4
    """AdamW's; 0 moves no weight."""
    schedule: Literal["linear", "constant"] = "linear"
    """Whether the learning rate falls to 0 over the steps or stays."""
    max_grad_norm: Positive = 0.5
    """A larger gradient is scaled down to it."""
    beta: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the KL term; 0 keeps no reference model."""
    max_unscored: Share = 0.5
    """The job ends when more of the last four steps' rollouts were lost; 1 never ends it."""
    loss_type: Literal["dapo", "grpo", "dr_grpo", "bnpo"] | None = None
    """How tokens are averaged; None is TRL's default, dapo."""
    scale_rewards: Literal["group", "batch", "none"] | None = None
    """Whose standard deviation advantages are divided by; None is TRL's default, the group's."""

    @model_validator(mode="after")
    def _batches_divide(self) -> Self:
        for name in ("rollouts_per_task", "train_batch"):
            part = getattr(self, name)
            if part is None:
                continue
            if wrong := undivided(name, part, "rollouts_per_step", self.rollouts_per_step):
                raise ValueError(wrong)
        return self


class GrpoConfig(TrainingConfig):
    """TRL's GRPO with evals before, during and after."""

    takes_many: ClassVar[bool] = True

    eval_split: Names = "coarse-eval"
    """The tasks of the evals."""
    save_steps: Count = 10
    """Steps between two checkpoints."""
    keep_checkpoints: Annotated[int, Field(ge=2)] = 2
    """At least two: the newest may be half written when the process dies."""
    eval_steps: Count | None = None
    """Also evaluate each so many steps; only before and after by default."""
    eval_samples: Count = 4
    """Rollouts of each task in an eval."""
    eval_tasks: Count | None = None
    """Only the first tasks of each eval split; all of them by default."""
