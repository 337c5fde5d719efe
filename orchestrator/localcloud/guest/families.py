"""Ending a process and all that came of it, where no namespace does it for us.

Descendants are found by their parents, and by a variable in their environment: a double fork
whose parents are gone still carries it. One that also cleared its environment escapes.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

_PROC = Path("/proc")


def members(root: int, marker: str) -> set[int]:
    """Living processes that descend from `root` or carry `marker`, `root` among them."""
    parents = dict(_living())
    family = {root} & parents.keys()
    while grown := {p for p, parent in parents.items() if parent in family} - family:
        family |= grown
    return family | {pid for pid in parents if _carries(pid, marker)}


def end_family(root: int, marker: str, *, spare: int = 0) -> None:
    """SIGKILL every member, until none is left; `spare` is the caller, when it is one itself."""
    while found := members(root, marker) - {spare, os.getpid()}:
        for number in (signal.SIGSTOP, signal.SIGKILL):  # a stopped process can't fork
            for pid in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)


def _living() -> list[tuple[int, int]]:
    """(pid, parent) of every process that isn't a zombie."""
    found = []
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            # The name in brackets may hold anything; what follows the last one is plain.
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if state not in ("Z", "X"):
                found.append((int(entry.name), int(parent)))
    return found


def _carries(pid: int, marker: str) -> bool:
    with contextlib.suppress(OSError):
        return marker.encode() in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    return False
