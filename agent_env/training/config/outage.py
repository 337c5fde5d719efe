"""What the outage run is told."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from agent_env.training.config.base import Count, Positive, Rate, Share
from agent_env.training.config.grpo import TrainingConfig


class OutageConfig(TrainingConfig):
    """A short GRPO whose env server is killed during a step and brought back."""

    rule: Literal["old", "seed", "continued", "stock"] = "seed"
    """Which server, and what its sessions do while it is away.

    `old`: ours without a journal, and a refusing server isn't waited for. `seed`: the same, waited
    for as long as a reset may take. `continued`: ours with a journal, so that episodes go on when
    it is back. `stock`: OpenEnv's own, waited for; its episodes are lost.
    """
    split: str = "coarse-train"
    steps: Annotated[int, Field(ge=3)] = 4
    interrupt_step: Count = 2
    """The step in which the server is killed."""
    interrupt_after_s: Positive = 10.0
    """The server is killed so long into the step, with all its rollouts begun, or under the step's
    first tool call if that comes sooner."""
    down_s: Annotated[float, Field(gt=0, le=45)] = 6.0
    """Until the server is started again: from the kill where episodes wait for it (`continued`);
    else from the first reset of the next step, which so always starts while it is away. Sessions
    wait for 60 s."""
    rollouts_per_step: Count = 16
    rollouts_per_task: Annotated[int, Field(ge=2)] = 8
    learning_rate: Rate = 1e-4
    max_unscored: Share = 1.0
    """Losing rollouts is what this program is for, so they don't end it."""

    @model_validator(mode="after")
    def _steps_fit(self) -> Self:
        if self.interrupt_step > self.steps - 2:
            raise ValueError(
                f"interrupt_step: {self.interrupt_step} leaves no two steps after it, "
                f"with steps {self.steps} it is at most {self.steps - 2}"
            )
        if self.env_url:
            raise ValueError("env_url: this program kills its server, so it starts its own")
        if self.reward is not None and self.rule == "stock":
            raise ValueError("reward: OpenEnv's own server has the bundle's own: leave it out")
        return self
