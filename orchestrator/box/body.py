"""What the agent acts through: threads, S3, processes and the power switch of a real machine.

The agent itself only decides and keeps count. A search over faults gives it another body, in which
time is simulated and nothing runs beside the loop.
"""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from orchestrator.box.fetch import metadata
from orchestrator.box.lanes import Lane
from orchestrator.box.process import Place, Process, end_leftover
from orchestrator.box.secrets import read_secrets
from orchestrator.box.spec import BoxSpec
from orchestrator.box.stacks import keep_stacks
from orchestrator.box.store import Store

OFF_TIMEOUT_S = 60
log = logging.getLogger("gpurun")


class Body:
    """A real machine."""

    def lane(self, name: str, wake: threading.Event) -> Lane:
        return Lane(name, wake)

    def store(self, spec: BoxSpec, *, fast: bool) -> Store:
        return Store(spec.bucket, spec.region, spec.prefix, fast=fast)

    def start(self, place: Place, command: list[str], env: Mapping[str, str]) -> Process:
        """Raises OSError."""
        return Process(place, command, env)

    def secrets(self, spec: BoxSpec) -> dict[str, str]:
        """What each of the jobs' secret variables holds. Raises SecretUnread."""
        return read_secrets(spec.secrets, spec.region)

    def end_leftover(self, place: Place) -> bool:
        """Kill what an earlier agent's job left running; whether there was anything."""
        return end_leftover(place)

    def keep_stacks(self, place: Place, pid: int, now: float) -> None:
        """Add where each process of the job stands to its stacks.txt. Raises OSError."""
        keep_stacks(place, pid, now)

    def spot_notice(self) -> float | None:
        """When a spot instance will be taken away, in epoch seconds; None: nobody says so."""
        try:
            said = json.loads(metadata("spot/instance-action", timeout_s=2))
            return datetime.fromisoformat(said["time"].replace("Z", "+00:00")).timestamp()
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None  # a 404 until there is one

    def disk_free(self, root: Path) -> int:
        """Bytes."""
        return shutil.disk_usage(root).free

    def power_off(self, command: Sequence[str]) -> None:
        """One that hangs or can't be run is left to user data, which has a harder one."""
        try:
            subprocess.run(command, check=False, timeout=OFF_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            log.warning("power-off: %s", error)
