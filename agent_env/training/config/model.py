"""How a program's model is loaded, what of it is trained, and what generates with it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]
GpuShare = Annotated[float, Field(gt=0, le=1)]


class Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


def _bare_true(value: Any) -> Any:
    return {False: None, True: {}}[value] if isinstance(value, bool) else value


class UnslothConfig(Section):
    """How Unsloth loads a model; needs a GPU."""

    four_bit: bool = True
    """QLoRA on a 4-bit base; false is 16-bit LoRA."""
    fast_inference: bool = False
    """Generate with Unsloth's colocated vLLM instead of transformers."""
    lora_rank: Count = 32
    """Rank of the adapters, and their alpha."""
    max_seq_tokens: Count = 4096
    """Prompt and completion together."""
    gpu_memory_share: GpuShare = 0.6
    """What vLLM may take of the GPU; unused without `fast_inference`."""


class LoraConfig(Section):
    """Train LoRA adapters (PEFT) on a base that stays as it is."""

    rank: Count = 32
    """Rank of the adapters."""
    alpha: Count = 32
    """What they are scaled by: alpha / rank."""
    targets: tuple[str, ...] | None = None
    """Names of the layers that get one; None for every linear layer but the head."""
    four_bit: bool = False
    """QLoRA: the base in bitsandbytes' 4-bit NF4; needs a GPU."""


class VllmConfig(Section):
    """Generate with vLLM on the trainer's own GPU instead of transformers."""

    gpu_memory_share: GpuShare = 0.3
    """What vLLM may take of the GPU, weights included; the trainer needs the rest."""
    max_seq_tokens: Count = 4096
    """Prompt and completion together; vLLM keeps room for one such sequence at least."""


Unsloth = Annotated[UnslothConfig | None, BeforeValidator(_bare_true)]
Lora = Annotated[LoraConfig | None, BeforeValidator(_bare_true)]
Vllm = Annotated[VllmConfig | None, BeforeValidator(_bare_true)]
