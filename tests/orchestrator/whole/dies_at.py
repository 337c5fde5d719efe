"""Run `gpurun` and end its process by SIGKILL at one exact point: `dies_at.py POINT ARGS…`.

POINT is the name of an AWS call (the process dies once AWS has answered it), or `training` or
`draining` (it dies when it first sees that a job trains, or a box drains).
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from botocore.client import BaseClient

from orchestrator import cli
from orchestrator.console.live import Progress
from orchestrator.snapshot import Snapshot


def die() -> None:
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def die_after_call(operation: str) -> None:
    client: Any = BaseClient  # its stubs leave out the one place every call passes
    real = client._make_api_call

    def call(self: BaseClient, name: str, params: dict[str, Any]) -> Any:
        answer = real(self, name, params)
        if name == operation:
            die()
        return answer

    client._make_api_call = call


def die_when_seen(phase: str) -> None:
    real = Progress.show

    def show(self: Progress, snapshot: Snapshot) -> None:
        real(self, snapshot)
        training = phase == "training" and any(job.state == "running" for job in snapshot.jobs)
        if training or any(box.phase == phase for box in snapshot.boxes):
            die()

    progress: Any = Progress  # mypy knows of no method that is put in another's place
    progress.show = show


point, sys.argv = sys.argv[1], ["gpurun", *sys.argv[2:]]
(die_when_seen if point in ("training", "draining") else die_after_call)(point)
cli.main()
