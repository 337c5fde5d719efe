"""SkyRL's own entry point as a child process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent_env.training import ray_child
from agent_env.training.stopping import StopRequest

ENTRY_POINT = "skyrl.train.entrypoints.main_base"


def run(
    words: Sequence[str], stop: StopRequest, stop_file: Path, *, module: str = ENTRY_POINT
) -> int:
    """Its exit status. A request to stop is passed on as `stop_file`; the child then checkpoints
    at its step's end. See `ray_child`.
    """
    stop_file.unlink(missing_ok=True)
    stop_file.with_suffix(".answered").unlink(missing_ok=True)

    def pass_on() -> None:
        if stop.asked:
            stop_file.touch()

    with ray_child.private_ray() as environment, stop.held():
        return ray_child.run(module, words, environment, look=pass_on)
