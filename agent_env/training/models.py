"""Loading a model and its tokenizer, and saving them so that no half of them is ever found."""

from __future__ import annotations

import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agent_env.training import trained_on
from agent_env.training.config import LoraConfig

ADAPTER = "adapter_config.json"


def settle_torch() -> None:
    """One thread: sums are then in the same order whatever machine the process runs on."""
    torch.set_num_threads(1)


def load_model(source: str, *, four_bit: bool = False) -> tuple[Any, Any]:
    """The model and tokenizer in a folder, or under a hub's id; adapters merged into their base.

    With `four_bit` the weights are bitsandbytes' NF4, on the GPU.
    """
    tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer.padding_side = "left"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if Path(source, ADAPTER).is_file() and not Path(source, "config.json").is_file():
        loader = import_module("peft").AutoPeftModelForCausalLM
        return loader.from_pretrained(source, dtype="auto").merge_and_unload(), tokenizer
    how = {"quantization_config": _nf4(), "device_map": {"": 0}} if four_bit else {}
    return AutoModelForCausalLM.from_pretrained(source, dtype="auto", **how), tokenizer


def adapters(config: LoraConfig) -> Any:
    """PEFT's description of the adapters."""
    targets = "all-linear" if config.targets is None else list(config.targets)
    return import_module("peft").LoraConfig(
        r=config.rank, lora_alpha=config.alpha, target_modules=targets, task_type="CAUSAL_LM"
    )


def with_adapters(model: Any, config: LoraConfig) -> Any:
    """The model with fresh adapters, which alone are trained."""
    return import_module("peft").get_peft_model(model, adapters(config))


def save_memory(model: Any) -> None:
    """Compute a layer's inner values again in the backward pass instead of keeping them."""
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write beside, then rename: `folder` is whole or isn't there. Of adapters, only they.

    What the model was trained on comes along, if that is written beside `folder`.
    """
    beside = folder.with_name(folder.name + ".partial")
    shutil.rmtree(beside, ignore_errors=True)
    beside.parent.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(beside)
    tokenizer.save_pretrained(beside)
    trained_on.carry(folder.parent, beside)
    shutil.rmtree(folder, ignore_errors=True)
    beside.rename(folder)


def _nf4() -> Any:
    return import_module("transformers").BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
