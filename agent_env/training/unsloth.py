"""Unsloth: how it loads a model, and the defaults of the trainer that it replaces.

Unsloth rewrites the trainer's config so that arguments left out get its own values; one that is
passed always wins. `trl_defaults` spells out TRL's, so that a run compares with one without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from agent_env.training.config import UnslothConfig
from agent_env.training.job import JobFailed

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The layers that get a LoRA adapter: attention and the feed-forward's three."""

# `loss_type` is not here on purpose: passing TRL's own default "dapo" makes unsloth mask cut
# completions and raise epsilon_high, which leaving it out doesn't.
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


def trl_defaults() -> dict[str, Any]:
    """TRL's value of every argument whose default unsloth replaces."""
    return dict(_TRL_DEFAULTS)


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
