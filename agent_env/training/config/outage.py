"""What the outage run is told."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from agent_env.training.config.base import Count, Positive, Rate
from agent_env.training.config.grpo import TrainingConfig


class OutageConfig(TrainingConfig):
    """A short GRPO whose env server is killed during a step and brought back."""

    rule: Literal["old", "seed"] = "seed"
    """`old`: a refusing server isn't waited for; `seed`: as long as a reset may take."""
    split: str = "coarse-train"
    steps: Annotated[int, Field(ge=3)] = 4
    interrupt_step: Count = 2
    down_s: Positive = 6.0
    """From the first reset that finds the server gone until it is started again."""
    rollouts_per_step: Count = 16
    rollouts_per_task: Annotated[int, Field(ge=2)] = 8
    learning_rate: Rate = 1e-4

    @model_validator(mode="after")
    def _steps_fit(self) -> Self:
        if self.interrupt_step > self.steps - 2:
            raise ValueError(
                f"interrupt_step: {self.interrupt_step} leaves no two steps after it, "
                f"with steps {self.steps} it is at most {self.steps - 2}"
            )
        if self.env_url:
            raise ValueError("env_url: this program kills its server, so it starts its own")
        return self
