"""Loading a model and its tokenizer, and saving them so that no half of them is ever found."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def settle_torch() -> None:
    """One thread: sums are then in the same order whatever machine the process runs on."""
    torch.set_num_threads(1)


def load_model(source: str) -> tuple[Any, Any]:
    """The model and tokenizer in a folder, or under a hub's id."""
    tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer.padding_side = "left"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return AutoModelForCausalLM.from_pretrained(source, dtype="auto"), tokenizer


def save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write beside, then rename: `folder` is whole or isn't there."""
    beside = folder.with_name(folder.name + ".partial")
    shutil.rmtree(beside, ignore_errors=True)
    beside.parent.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(beside)
    tokenizer.save_pretrained(beside)
    shutil.rmtree(folder, ignore_errors=True)
    beside.rename(folder)
