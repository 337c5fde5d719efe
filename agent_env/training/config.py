"""What each program may be told: one frozen model per program, free of torch.

`python -m agent_env.training.config PROGRAM` reads a config as JSON on stdin and says on stderr,
one line a fault, what is wrong with it: so a run is refused while it is planned, not on a box.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from agent_env.errors import AgentEnvError

EXIT_BAD_CONFIG = 2

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Rate = Annotated[float, Field(ge=0)]
"""A learning rate; 0 is allowed, it is the negative control."""

M = TypeVar("M", bound=BaseModel)


class ConfigError(AgentEnvError):
    """A job's config is wrong; `faults` has one line for each thing to mend."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


class _Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class UnslothConfig(_Config):
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


class ProgramConfig(_Config):
    """What every program takes."""

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
        if self.model == "tiny" and not isinstance(self, SftConfig):
            raise ValueError(
                "model: 'tiny' is what sft builds; give its result as the job's input"
            )
        return self


class SftConfig(ProgramConfig):
    """Warm start of a model on the bundle's expert."""

    split: str = "coarse-train"
    eval_split: str = "coarse-eval"
    model: str = "tiny"
    demonstrations: Count = 300
    """Episodes that the expert plays."""
    noise: Share = 0.4
    """Probability that the expert decides wrongly, so that GRPO has something left to learn."""
    steps: Count = 300
    batch_rows: Count = 16
    """Demonstrations a step."""
    learning_rate: Rate = 3e-3
    decision_weight: Positive = 10.0
    """Weight in the loss of the token an argument starts with; the other tokens weigh 1."""
    eval_samples: Count = 4
    eval_tasks: Count | None = None
    """Only the first tasks of the eval split; all of them by default."""
    gate: Share = 0.0
    """Sampled eval reward below which the job fails: GRPO can't start from chance."""
    extra_rounds: Annotated[int, Field(ge=0)] = 2
    """Times the warm start goes on for a while when it is under the gate."""

    @model_validator(mode="after")
    def _without_unsloth(self) -> Self:
        if self.unsloth:
            raise ValueError("unsloth: the warm start is a plain loop, use it with grpo")
        return self


class TrainingConfig(ProgramConfig):
    """What a GRPO step is made of."""

    split: str = "coarse-train"
    steps: Count = 60
    rollouts_per_step: Count = 64
    rollouts_per_task: Annotated[int, Field(ge=2)] = 16
    """The group over which advantages are formed."""
    train_batch: Count | None = None
    """Rollouts in one backward pass; all of a step's by default."""
    learning_rate: Rate = 7e-4
    schedule: Literal["linear", "constant"] = "linear"
    max_grad_norm: Positive = 0.5
    beta: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the KL term; 0 keeps no reference model."""

    @model_validator(mode="after")
    def _batches_divide(self) -> Self:
        for name in ("rollouts_per_task", "train_batch"):
            part = getattr(self, name)
            if part is not None and self.rollouts_per_step % part:
                raise ValueError(
                    f"{name}: {part} doesn't divide rollouts_per_step, {self.rollouts_per_step}"
                )
        return self


class GrpoConfig(TrainingConfig):
    """TRL's GRPO with evals before, during and after."""

    eval_split: str = "coarse-eval"
    save_steps: Count = 10
    keep_checkpoints: Annotated[int, Field(ge=2)] = 2
    """At least two: the newest may be half written when the process dies."""
    eval_steps: Count | None = None
    """Also evaluate each so many steps; only before and after by default."""
    eval_samples: Count = 4
    eval_tasks: Count | None = None
    unscored_steps: Count = 3
    """So many steps in a row without one scored rollout end the job: its env server is gone."""


class EvaluateConfig(ProgramConfig):
    """Sampled reward of a model over a split."""

    split: str = "coarse-eval"
    samples: Count = 8
    """Rollouts a task."""
    tasks: Count | None = None
    """Only the first tasks of the split; all of them by default."""


class OutageConfig(TrainingConfig):
    """A short GRPO whose env server is killed during a step and brought back."""

    rule: Literal["old", "seed"] = "seed"
    """`old`: a refusing server isn't waited for; `seed`: as long as a reset may take."""
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


CONFIGS: dict[str, type[ProgramConfig]] = {
    "sft": SftConfig,
    "grpo": GrpoConfig,
    "evaluate": EvaluateConfig,
    "outage": OutageConfig,
}


def parse_config(model: type[M], values: object) -> M:
    """`values` as that model. Raises ConfigError with one line per fault."""
    if not isinstance(values, dict):
        raise ConfigError([f"config: must be a mapping, not {type(values).__name__}"])
    try:
        return model.model_validate(values)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        raise ConfigError([_line(model, fault) for fault in faults]) from None


def main(argv: Sequence[str]) -> int:
    """Check the config on stdin for the program that `argv` names."""
    try:
        _check(argv, sys.stdin.read())
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_BAD_CONFIG
    return 0


def _check(argv: Sequence[str], text: str) -> None:
    name = argv[0] if len(argv) == 1 else ""
    if name not in CONFIGS:
        known = ", ".join(CONFIGS)
        raise ConfigError(
            [f"unknown program {name!r}{_near(name, list(CONFIGS))}; known: {known}"]
        )
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError([f"config: not JSON: {error}"]) from None
    parse_config(CONFIGS[name], values)


def _line(model: type[BaseModel], fault: Any) -> str:
    path = [str(part) for part in fault["loc"]]
    where = ".".join(["config", *path])
    if fault["type"] == "extra_forbidden":
        return f"{where}: unknown key{_near(path[-1], _fields(model, path[:-1]))}"
    if fault["type"] == "value_error" and not path:
        return f"{where}.{fault['ctx']['error']}"
    return f"{where}: {_lower_first(fault['msg'])}, got {fault['input']!r}"


def _fields(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    for name in path:
        options = get_args(model.model_fields[name].annotation)
        model = next(kind for kind in options if isinstance(kind, type) and kind is not type(None))
    return list(model.model_fields)


def _near(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
