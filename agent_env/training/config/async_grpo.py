"""What asynchronous GRPO is told."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from agent_env.training.config.base import Count
from agent_env.training.config.grpo import TrainingConfig

VLLM_URL = "http://localhost:8000"


class AsyncGrpoConfig(TrainingConfig):
    """GRPO whose rollouts go on while the weights are updated; needs a GPU and vLLM.

    `completion_tokens` bounds each of a rollout's answers, not all of them together.
    """

    vllm_url: str | None = None
    """A running vLLM server, by default the one on this machine's port 8000; none with unsloth."""
    max_inflight: Count | None = None
    """Rollouts under way at once, each with a session; as many as a step takes by default."""
    max_staleness: Count = 4
    """Updates that a rollout may lag behind before it is thrown away."""
    save_steps: Count = 10
    """Steps between two checkpoints."""
    keep_checkpoints: Annotated[int, Field(ge=2)] = 2
    """At least two: the newest may be half written when the process dies."""

    @property
    def server_url(self) -> str | None:
        """Where vLLM is; None under unsloth, which generates with an engine of its own."""
        return None if self.unsloth else self.vllm_url or VLLM_URL

    @property
    def inflight(self) -> int:
        """Rollouts under way at once, and sessions that they need."""
        return self.max_inflight or self.rollouts_per_step

    @model_validator(mode="after")
    def _is_asynchronous(self) -> Self:
        if self.beta:
            raise ValueError("beta: asynchronous GRPO keeps no reference model: leave it out")
        for name in ("loss_type", "scale_rewards"):
            if getattr(self, name, None) is not None:
                raise ValueError(f"{name}: asynchronous GRPO has one loss: leave it out")
        if getattr(self, "lora", None):
            raise ValueError("lora: every weight is trained here; adapters come with unsloth")
        if getattr(self, "vllm", None):
            raise ValueError("vllm: it is a server here: start `vllm serve`, and set vllm_url")
        return self

    @model_validator(mode="after")
    def _one_engine(self) -> Self:
        if self.unsloth and self.vllm_url:
            raise ValueError("vllm_url: unsloth generates with its own engine: leave it out")
        if self.unsloth and not self.unsloth.fast_inference:
            raise ValueError(
                "unsloth: asynchronous GRPO generates with the model's own vLLM engine: set "
                "unsloth.fast_inference: true"
            )
        return self

    @model_validator(mode="after")
    def _a_step_fits(self) -> Self:
        if self.inflight < self.rollouts_per_task:
            raise ValueError(
                f"max_inflight: {self.inflight} can't hold one task's rollouts at once, "
                f"{self.rollouts_per_task}"
            )
        return self
