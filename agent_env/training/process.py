"""What a training process settles once, before torch and the trainer are imported."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

from agent_env.training.preflight.source import is_adapter


def quiet_libraries() -> None:
    """To be called before the hub's client is imported: it reads its variables only then."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def settle_process(*, source: str, unsloth: bool) -> None:
    """Quiet libraries, offline ones when the model is here, and unsloth before the trainer.

    `source` is `tiny`, a folder, or a hub's id: only the last may be looked up, and the base
    model of a folder of adapters.
    """
    quiet_libraries()
    if source == "tiny" or (Path(source).is_dir() and not is_adapter(source)):
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if unsloth:
        # A broken driver would otherwise train on the CPU in silence.
        os.environ["UNSLOTH_DISABLE_CPU_FALLBACK"] = "1"
        import_module("unsloth")
    else:
        # More threads make sums depend on the machine, and win nothing on a model this small.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
