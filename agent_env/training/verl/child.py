"""verl's own entry point as a child process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from agent_env.training import ray_child

ENTRY_POINT = "verl.trainer.main_ppo"


def run(words: Sequence[str], *, folder: Path, metrics: Path, look: Callable[[], None]) -> int:
    """Its exit status; `look` is called each second, and at the end. See `ray_child`."""
    words = [*words, f"hydra.run.dir={folder}", "hydra.output_subdir=null"]
    told = {"VERL_FILE_LOGGER_PATH": str(metrics), "HYDRA_FULL_ERROR": "1", "RAY_DEDUP_LOGS": "0"}
    with ray_child.named_or_private_ray() as environment:
        return ray_child.run(ENTRY_POINT, words, environment | told, look=look, folder=folder)
