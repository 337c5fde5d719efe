"""Unsloth: how it loads a model, and a config that means under it what TRL's page says.

Unsloth rewrites the trainer's config so that arguments left out get its own values, and a few that
are passed are changed. `grpo_config` spells every one of them out; the table is checked against
the pinned wheels (tools/unsloth_drift.py).
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from agent_env.training.batches import generation_faults
from agent_env.training.config import ConfigError, UnslothConfig
from agent_env.training.job import JobFailed

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The layers that get a LoRA adapter: attention and the feed-forward's three."""

# `loss_type` is not here: left out it is "dapo" on both sides, and naming it is no different once
# `mask_truncated_completions` and `epsilon_high` are spelled out.
_TRL_DEFAULTS: dict[str, Any] = {
    "optim": "adamw_torch_fused",
    "learning_rate": 1e-6,
    "weight_decay": 0.0,
    "warmup_steps": 0,
    "seed": 42,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "per_device_eval_batch_size": 8,
    "eval_accumulation_steps": None,
    "vllm_importance_sampling_correction": True,
    "beta": 0.0,
    "mask_truncated_completions": False,
    "router_aux_loss_coef": None,
    "top_k": 0,
    "bf16": None,
    "logging_steps": 10,
    "logging_nan_inf_filter": True,
    "torch_empty_cache_steps": None,
    "generation_kwargs": None,
    "include_num_input_tokens_seen": "no",
}
_EPSILON, _GENERATIONS, _SCALING = 0.2, 8, "group"
_OUTPUT_DIR = "trainer_output"
_ONLY_HOW = {"gradient_checkpointing_kwargs", "output_dir"}
"""Fields that may differ from TRL's own: they don't change what is computed."""
_NEVER_NONE = {*_TRL_DEFAULTS, "epsilon_high", "output_dir", "loss_type", "scale_rewards"}
"""Arguments whose None is taken for left out, on either side."""


class UnslothTrap(UserWarning):
    """An argument that Unsloth takes otherwise than TRL's page says."""


def trl_defaults() -> dict[str, Any]:
    """TRL's value of every argument whose default unsloth replaces."""
    return dict(_TRL_DEFAULTS)


def grpo_config(**arguments: Any) -> Any:
    """TRL's GRPOConfig of these arguments; with unsloth imported before, Unsloth's with the same.

    An argument left out has TRL's value. Warns UnslothTrap of what Unsloth does its own way.
    Raises ConfigError for batches that hold no whole groups, JobFailed when Unsloth's config
    doesn't say what TRL's would: a version that nobody has read yet.
    """
    if faults := list(batch_faults(arguments, int(os.environ.get("WORLD_SIZE", "1")))):
        raise ConfigError(faults)
    made = import_module("trl").GRPOConfig
    if not made.__name__.startswith("Unsloth"):
        return made(**_given(arguments))
    for trap in traps(arguments):
        warnings.warn(trap, UnslothTrap, stacklevel=2)
    config = made(**spelled_out(arguments))
    if changed := list(_changed(config, _trls_own(made), arguments)):
        raise JobFailed("unsloth changed what it was told: " + "; ".join(changed))
    return config


def async_config(**arguments: Any) -> Any:
    """The same for AsyncGRPOConfig. Raises JobFailed when Unsloth's says something else."""
    made = import_module("trl.experimental.async_grpo").AsyncGRPOConfig
    if not made.__name__.startswith("Unsloth"):
        return made(**_given(arguments))
    plain = _trls_own(made)
    fields = {field.name: field.default for field in dataclasses.fields(plain) if field.init}
    # Where it has another default than GRPOConfig, its own is meant.
    own = {name: fields[name] for name in fields.keys() & _TRL_DEFAULTS.keys()}
    spelled = spelled_out({**own, **_given(arguments)})
    config = made(**{name: value for name, value in spelled.items() if name in fields})
    if changed := list(_changed(config, plain, arguments)):
        raise JobFailed("unsloth changed what it was told: " + "; ".join(changed))
    return config


def spelled_out(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with which Unsloth's config means what TRL's does without them."""
    given = _given(arguments)
    epsilon = given.get("epsilon", _EPSILON)
    spelled = {**_TRL_DEFAULTS, "epsilon_high": epsilon, "output_dir": _OUTPUT_DIR, **given}
    if _scales_dr_grpo(given):
        spelled["scale_rewards"] = None
    return spelled


def batch_faults(arguments: Mapping[str, Any], processes: int) -> Iterator[str]:
    """What TRL refuses once it is built, and Unsloth mends in silence by another batch size."""
    told = _told(arguments)
    yield from generation_faults(told, processes)
    judged = told.get("num_generations_eval") or told["num_generations"]
    evals = told["per_device_eval_batch_size"]
    if _evaluates(told) and evals * processes % judged:
        yield (
            f"per_device_eval_batch_size: {evals} × {processes} processes is no multiple of the "
            f"{judged} rollouts of an eval's task: set it, or num_generations_eval"
        )


def traps(arguments: Mapping[str, Any]) -> Iterator[str]:
    """One sentence for each thing that Unsloth would do, or does, its own way."""
    told = _told(arguments)
    if _scales_dr_grpo(told):
        yield (
            "scale_rewards stays on with loss_type 'dr_grpo', as TRL has it; Unsloth would switch "
            "it off, as the paper does: pass scale_rewards=False for that"
        )
    batch, evals = told["per_device_train_batch_size"], told["per_device_eval_batch_size"]
    if _evaluates(told) and evals == 8 > batch:  # Unsloth takes 8 for TrainingArguments' default
        yield (
            f"per_device_eval_batch_size 8 counts as unset: Unsloth evaluates {batch} rollouts at "
            "once, as it trains, where that holds whole tasks; the numbers stay the same"
        )
    if told.get("output_dir") is None and told.get("save_strategy", "steps") == "steps":
        yield (
            f"no output_dir: checkpoints go to {_OUTPUT_DIR}, as with TRL; Unsloth would save none"
        )


def load_model(source: str, config: UnslothConfig, *, seed: int) -> tuple[Any, Any]:
    """The model with fresh LoRA adapters, and its tokenizer. Raises JobFailed without a GPU."""
    if not import_module("torch").cuda.is_available():
        raise JobFailed("unsloth needs an NVIDIA GPU that torch can use; nvidia-smi says why not")
    loader = import_module("unsloth").FastLanguageModel
    model, tokenizer = loader.from_pretrained(
        model_name=source,
        max_seq_length=config.max_seq_tokens,
        load_in_4bit=config.four_bit,
        fast_inference=config.fast_inference,
        max_lora_rank=config.lora_rank,
        gpu_memory_utilization=config.gpu_memory_share,
    )
    model = loader.get_peft_model(
        model,
        r=config.lora_rank,
        lora_alpha=config.lora_rank,
        target_modules=list(PROJECTIONS),
        use_gradient_checkpointing="unsloth",
        random_state=seed,
    )
    return model, tokenizer


def for_training(model: Any) -> None:
    """Switch a loaded model to training: its own gradient checkpointing, no cache, real logits."""
    # Its GRPO, which an eval runs, has the model return hidden states in their place.
    os.environ["UNSLOTH_RETURN_HIDDEN_STATES"] = "0"
    import_module("unsloth").FastLanguageModel.for_training(model)


def _trls_own(made: type) -> type:
    """The class that Unsloth's derives from."""
    return next(kind for kind in made.__mro__ if not kind.__name__.startswith("Unsloth"))


def _changed(config: Any, plain: Any, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Every field in which Unsloth's config differs from what TRL's own class makes of it."""
    fields = {field.name for field in dataclasses.fields(plain) if field.init}
    own = plain(**{name: value for name, value in _given(arguments).items() if name in fields})
    expected = {**vars(own), "epsilon_high": _epsilon_high(own)}
    for name in sorted(fields - _ONLY_HOW):
        has = _epsilon_high(config) if name == "epsilon_high" else getattr(config, name, None)
        if has != expected.get(name):
            yield f"{name} is {has!r}, not {expected.get(name)!r}"


def _epsilon_high(config: Any) -> Any:
    """TRL's reading: without one of its own the upper bound is the lower one's."""
    return config.epsilon if config.epsilon_high is None else config.epsilon_high


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    left_out = {name for name in _NEVER_NONE if arguments.get(name) is None}
    return {name: value for name, value in arguments.items() if name not in left_out}


def _told(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {**_TRL_DEFAULTS, "num_generations": _GENERATIONS, **_given(arguments)}


def _evaluates(told: Mapping[str, Any]) -> bool:
    strategy = told.get("eval_strategy", "no")
    return str(getattr(strategy, "value", strategy)) != "no"


def _scales_dr_grpo(told: Mapping[str, Any]) -> bool:
    is_dr_grpo = str(told.get("loss_type", "")).lower() == "dr_grpo"
    return is_dr_grpo and told.get("scale_rewards", _SCALING) in (True, _SCALING)
