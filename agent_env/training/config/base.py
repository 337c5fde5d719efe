"""What every program takes, and the kinds of numbers that configs are made of."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Rate = Annotated[float, Field(ge=0)]
"""A learning rate; 0 is allowed, it is the negative control."""


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class UnslothConfig(Section):
    """How Unsloth loads a model; needs a GPU."""

    four_bit: bool = True
    """QLoRA on a 4-bit base; false is 16-bit LoRA."""
    fast_inference: bool = False
    """Generate with Unsloth's colocated vLLM instead of transformers."""
    lora_rank: Count = 32
    max_seq_tokens: Count = 4096
    gpu_memory_share: Annotated[float, Field(gt=0, le=1)] = 0.6
    """What vLLM may take of the GPU; unused without `fast_inference`."""


def _bare_true(value: Any) -> Any:
    return {False: None, True: {}}[value] if isinstance(value, bool) else value


class ProgramConfig(Section):
    """What every program takes."""

    builds_tiny: ClassVar[bool] = False
    """Whether the program can build the model `tiny` itself."""

    bundle: str = "gridsim"
    """An installed bundle's name, `module:attribute`, or a folder."""
    env_url: str | None = None
    """An env server that is already there; without it the program serves the bundle itself."""
    model: str = "input"
    """`input`: the job's input `model`; `tiny`: built by sft; else a folder or a hub's id."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    batch: Count = 64
    """Rollouts that an eval generates at once; as many as the memory takes."""
    temperature: Positive = 1.0
    completion_tokens: Count = 64
    """Limit of one rollout's own tokens and tool results together."""
    tool_rounds: Count = 3
    """Calls after this many rounds are not executed."""
    unsloth: Annotated[UnslothConfig | None, BeforeValidator(_bare_true)] = None
    """`true` for Unsloth's defaults, or its settings."""

    @model_validator(mode="after")
    def _model_exists(self) -> Self:
        if self.model == "tiny" and not self.builds_tiny:
            raise ValueError(
                "model: 'tiny' is what sft builds; give its result as the job's input"
            )
        return self
