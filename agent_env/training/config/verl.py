"""What GRPO under verl is told."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from agent_env.training.config.addresses import is_loopback
from agent_env.training.config.base import Count, Positive, Rate
from agent_env.training.config.grpo import GrpoConfig


class VerlGrpoConfig(GrpoConfig):
    """GRPO under verl: vLLM generates and FSDP trains, on the same GPUs in turn.

    Evals sample at the training's temperature. A stop goes back to the last checkpoint.
    """

    under_trl: ClassVar[bool] = False

    learning_rate: Rate = 1e-6
    schedule: Literal["constant"] = "constant"
    loss_type: Literal["dapo", "grpo", "dr_grpo"] | None = None
    """How tokens are averaged; None is verl's default, dapo's."""
    scale_rewards: Literal["group", "none"] | None = None
    """Whose standard deviation advantages are divided by; None is the group's."""
    prompt_tokens: Count = 1024
    """Limit of a prompt with its tools; a longer one is refused before the model loads."""
    call_format: str | None = None
    """How the model writes calls, one of verl's names; by default what its chat template shows."""
    gpus: Count = 1
    """GPUs of a node."""
    nodes: Count = 1
    """With more than one, RAY_ADDRESS names the cluster, and env_url a server they all reach."""
    workers: Count = 4
    """Processes that play rollouts."""
    rollout_s: Positive = 600.0
    """What one rollout may take in all; then it is lost."""

    @property
    def sessions(self) -> int:
        """Rollouts at once: a training step's, or `batch` of an eval's."""
        return max(self.rollouts_per_step, self.batch)

    @property
    def prompts_per_step(self) -> int:
        """Tasks of a step."""
        return self.rollouts_per_step // self.rollouts_per_task

    @model_validator(mode="after")
    def _as_verl_can(self) -> Self:
        """What other programs take and verl can't."""
        if self.unsloth:
            raise ValueError("unsloth: verl loads models itself; leave it out")
        if self.train_batch:
            raise ValueError("train_batch: verl fills its backward passes by tokens; leave it out")
        if self.lora and (self.lora.four_bit or self.lora.targets):
            raise ValueError("lora: verl takes rank and alpha, on every linear layer in 16 bits")
        return self

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.nodes > 1 and (self.env_url is None or is_loopback(self.env_url)):
            raise ValueError(
                f"env_url: {self.nodes} nodes need a server on an address that all of them reach,"
                f" got {self.env_url!r}"
            )
        return self
