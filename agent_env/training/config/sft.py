"""What the warm start is told."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from agent_env.training.config.base import Count, Positive, ProgramConfig, Rate, Share
from agent_env.training.config.dividing import undivided


class SftConfig(ProgramConfig):
    """Warm start of a model on the bundle's expert; adapters end merged into its weights."""

    builds_tiny: ClassVar[bool] = True

    split: str = "coarse-train"
    """The tasks that the expert plays."""
    eval_split: str = "coarse-eval"
    """The tasks of the evals."""
    model: str = "tiny"
    demonstrations: Count = 300
    """Episodes that the expert plays."""
    noise: Share = 0.4
    """Probability that the expert decides wrongly, so that GRPO has something left to learn."""
    steps: Count = 300
    """Training steps, each one update of the weights."""
    batch_rows: Count = 16
    """Demonstrations a step."""
    train_batch: Count | None = None
    """Demonstrations in one backward pass; all of a step's by default."""
    learning_rate: Rate = 3e-3
    """AdamW's."""
    decision_weight: Positive = 10.0
    """Weight in the loss of the token an argument starts with; the other tokens weigh 1."""
    eval_samples: Count = 4
    """Rollouts of each task in an eval."""
    eval_tasks: Count | None = None
    """Only the first tasks of the eval split; all of them by default."""
    gate: Share = 0.0
    """Sampled eval reward below which the job fails: GRPO can't start from chance."""
    extra_rounds: Annotated[int, Field(ge=0)] = 2
    """Times the warm start goes on for a while when it is under the gate."""

    @model_validator(mode="after")
    def _batches_divide(self) -> Self:
        if self.train_batch is None:
            return self
        if wrong := undivided("train_batch", self.train_batch, "batch_rows", self.batch_rows):
            raise ValueError(wrong)
        return self

    @model_validator(mode="after")
    def _tiny_is_whole(self) -> Self:
        for name in ("unsloth", "lora", "vllm"):
            if self.model == "tiny" and getattr(self, name):
                raise ValueError(f"{name}: for a model that was trained before; 'tiny' is built")
        return self
