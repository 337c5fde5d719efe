"""A box: the processes and the disk behind one instance, whichever driver runs them."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from orchestrator.localcloud.imds import Metadata


class Outcome(StrEnum):
    """Why a box is no more."""

    POWERED_OFF = "powered-off"
    KILLED = "killed"
    FAILED = "failed"


class BoxFailed(Exception):
    """The box didn't start; the message is for the console log."""


@dataclass(frozen=True, kw_only=True)
class BoxSpec:
    """All that a driver needs to boot a box."""

    instance_id: str
    region: str
    user_data: bytes
    authorized_key: str
    metadata: Callable[[], Metadata]
    now: Callable[[], datetime]
    cloud_port: int
    folder: Path
    """The box's own folder: its disk and its sockets; deleted with the volume."""
    console: Path
    wheels: Path | None = None


class Box(Protocol):
    """One running box; its methods belong to the event loop that started it."""

    ssh_port: int

    async def start(self) -> None:
        """Boot; returns when the first process runs. Raises BoxFailed."""

    async def ended(self) -> Outcome:
        """Wait until no process of the box is left."""

    def kill(self) -> None:
        """End every process of the box, whatever it is doing; may be called again."""


def box_environment(spec: BoxSpec, **extra: str) -> dict[str, str]:
    """What every process of a box starts with."""
    return {
        "LANG": "C.UTF-8",
        "AWS_REGION": spec.region,
        "AWS_DEFAULT_REGION": spec.region,
        **extra,
    }


async def delete_folder(folder: Path) -> None:
    """Delete a box's disk, off the event loop; one that isn't there is deleted already."""
    await asyncio.to_thread(_delete, folder)


def _delete(folder: Path) -> None:
    if not folder.exists():
        return
    try:
        shutil.rmtree(folder)
    except PermissionError:  # folders that their owner may not write into
        for parent, _, _ in os.walk(folder):
            Path(parent).chmod(0o700)
            for child in Path(parent).iterdir():
                if child.is_dir() and not child.is_symlink():
                    child.chmod(0o700)
        shutil.rmtree(folder)
