"""Adapters merged into the whole weights of their base, in its own precision, on the CPU.

A program of its own, `python -m agent_env.training.merging BASE ADAPTERS FOLDER`: where unsloth
was imported, the model's classes are no longer transformers' own. And a base that was trained in 4
bits is read again in full, so that nothing of the rounding stays in the result.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer

from agent_env.training import models
from agent_env.training.job import JobFailed


def save_merged(model: Any, tokenizer: Any, base: str, folder: Path) -> None:
    """Save a model with adapters as `base` with them merged in. Raises JobFailed."""
    # One name at every start: what a kill leaves among the results is gone with the next.
    apart = folder.with_name(folder.name + ".adapters")
    shutil.rmtree(apart, ignore_errors=True)
    apart.mkdir(parents=True)
    try:
        model.save_pretrained(apart)
        tokenizer.save_pretrained(apart)
        command = [sys.executable, "-m", __name__, base, str(apart), str(folder)]
        done = subprocess.run(command, check=False)
    finally:
        shutil.rmtree(apart, ignore_errors=True)
    if done.returncode != 0:
        code = done.returncode
        raise JobFailed(f"the adapters couldn't be merged into {base}: exit status {code}")


def merge(base: str, adapters: str, folder: Path) -> None:
    """Read both, add them up, save the whole model and the tokenizer that lies by the adapters."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype="auto")
    if getattr(model, "is_quantized", False):
        model = model.dequantize()
    merged = import_module("peft").PeftModel.from_pretrained(model, adapters).merge_and_unload()
    models.save_model(merged, AutoTokenizer.from_pretrained(adapters), folder)


def main(arguments: Sequence[str]) -> None:
    """Merge what the command line names."""
    base, adapters, folder = arguments
    merge(base, adapters, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
