"""Which of SkyRL's checkpoints a run goes on from."""

from __future__ import annotations

from pathlib import Path

from agent_env.training import ray_checkpoints

TRACKER = "latest_ckpt_global_step.txt"
LAST_PARTS = ("data.pt", "trainer_state.pt")
"""What SkyRL writes after the weights, in this order."""


def settle(folder: Path) -> int:
    """The step that SkyRL will go on from, 0 for the beginning; its tracker says so, too."""
    return ray_checkpoints.settle(folder, TRACKER, LAST_PARTS)
