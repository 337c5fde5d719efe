"""What every program takes, and the kinds of numbers that configs are made of."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from agent_env.training.config.model import (
    Count,
    Lora,
    LoraConfig,
    Section,
    Unsloth,
    UnslothConfig,
    Vllm,
    VllmConfig,
)
from agent_env.training.config.names import Names, listed

__all__ = [
    "Count",
    "LoraConfig",
    "Positive",
    "ProgramConfig",
    "Rate",
    "Section",
    "Share",
    "UnslothConfig",
    "VllmConfig",
]

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Rate = Annotated[float, Field(ge=0)]
"""A learning rate; 0 is allowed, it is the negative control."""


class ProgramConfig(Section):
    """What every program takes."""

    builds_tiny: ClassVar[bool] = False
    """Whether the program can build the model `tiny` itself."""
    takes_many: ClassVar[bool] = False
    """Whether the program can train on several bundles at once."""
    under_trl: ClassVar[bool] = True
    """Whether it needs TRL's stack; else it looks at its machine itself."""

    bundle: Names = "gridsim"
    """An installed bundle's name, `module:attribute`, or a folder; or a list of them, and then
    every split is a list, too: one for each bundle, in their order."""
    env_url: str | None = None
    """An env server that is already there; without it the program serves the bundle itself."""
    reward: str | None = None
    """What the server makes its rewards of: a score's id, or `mean`; else the bundle's own."""
    model: str = "input"
    """`input`: the job's input `model`; `tiny`: built by sft; else a folder or a hub's id."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Of new weights, the order of rows and what is sampled."""
    batch: Count = 64
    """Rollouts that an eval generates at once; as many as the memory takes."""
    temperature: Positive = 1.0
    """At which rollouts are sampled, an eval's included."""
    completion_tokens: Count = 64
    """Limit of one rollout's own tokens and tool results together."""
    tool_rounds: Count = 3
    """Calls after this many rounds are not executed."""
    thinking: bool | None = None
    """Whether the model thinks before it acts, if its chat template has the choice (Qwen3's has);
    None is the template's own default."""
    unsloth: Unsloth = None
    """`true` for Unsloth's defaults, or its settings; it brings its own LoRA and vLLM."""
    lora: Lora = None
    """`true` for LoRA adapters by default, or their settings; without, every weight is trained."""
    vllm: Vllm = None
    """`true` or settings: vLLM generates, on the trainer's GPU; without, transformers do."""
    report_to: tuple[Literal["wandb", "trackio"], ...] = ()
    """Also report there; tokens come from the environment, as a job's secrets."""

    @property
    def bundles(self) -> tuple[str, ...]:
        """The bundles, also where there is only one."""
        return listed(self.bundle)

    def eval_rollouts(self, samples: int, tasks: int | None) -> int:
        """Rollouts of an eval at once, and sessions that they need; `tasks` of each bundle."""
        tasks_at_once = max(1, self.batch // samples)
        if tasks is not None:
            tasks_at_once = min(tasks_at_once, tasks * len(self.bundles))
        return tasks_at_once * samples

    @model_validator(mode="after")
    def _model_exists(self) -> Self:
        if self.model == "tiny" and not self.builds_tiny:
            raise ValueError(
                "model: 'tiny' is what sft builds; give its result as the job's input"
            )
        return self

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if self.unsloth and self.lora:
            raise ValueError("lora: unsloth brings its own adapters; set unsloth.lora_rank")
        if self.unsloth and self.vllm:
            raise ValueError("vllm: unsloth brings its own; set unsloth.fast_inference")
        return self

    @model_validator(mode="after")
    def _splits_pair_up(self) -> Self:
        count = len(self.bundles)
        if count > 1 and not self.takes_many:
            raise ValueError(f"bundle: this program takes one, not {count}")
        if len(set(self.bundles)) < count:
            raise ValueError(f"bundle: {', '.join(self.bundles)}: one of them twice")
        for name in ("split", "eval_split"):
            splits = listed(getattr(self, name, self.bundle))
            if len(splits) != count:
                raise ValueError(
                    f"{name}: name one for each bundle, in their order: {count} bundles "
                    f"({', '.join(self.bundles)}), {len(splits)} splits ({', '.join(splits)})"
                )
        return self
