"""verl's checkpoints: the one that a run goes on from, and the model that is left."""

from __future__ import annotations

import shutil
from pathlib import Path

from agent_env.training import ray_checkpoints, trained_on

TRACKER = "latest_checkpointed_iteration.txt"
LAST_PART = "data.pt"
"""The data loader's state, which verl writes after the weights."""


def settle(out: Path) -> int:
    """The step that verl will go on from, 0 for the beginning; its tracker says so, too."""
    return ray_checkpoints.settle(out, TRACKER, [LAST_PART])


def export(out: Path, step: int) -> Path | None:
    """Copy the step's weights to `out/model`, whole or not at all; None where verl wrote none."""
    weights = out / f"global_step_{step}" / "actor" / "huggingface"
    if not any(weights.glob("*.safetensors")):
        return None
    beside, model = out / "model.partial", out / "model"
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(weights, beside)
    trained_on.carry(out, beside)
    shutil.rmtree(model, ignore_errors=True)
    return beside.rename(model)
