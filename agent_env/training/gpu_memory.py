"""How much of the trainer's GPU is taken, whoever takes it: what nvidia-smi calls used.

Torch counts what its own allocator has; an engine beside it, another process and the driver's
contexts it doesn't. So the device itself is asked, again and again, and the most is kept. What is
taken and given back between two looks isn't seen.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

BYTES_A_GB = 1e9


class GpuMemory:
    """The most that was taken whenever somebody looked.

    `read` says the device's free and total bytes; None where there is no device in use.
    """

    def __init__(self, read: Callable[[], tuple[int, int] | None] | None = None) -> None:
        self._read = read or free_and_total
        self._most = 0

    def look(self) -> None:
        """Ask the device once; cheap enough for each backward pass."""
        if (seen := self._read()) is not None:
            self._most = max(self._most, used(*seen))

    def take(self) -> dict[str, float]:
        """`gpu_gb`, the most since the last call, in GB of 1e9 bytes; empty on a CPU."""
        most, self._most = self._most, 0
        return {"gpu_gb": most / BYTES_A_GB} if most else {}


def used(free: int, total: int) -> int:
    """Bytes that anyone holds."""
    return total - free


def free_and_total() -> tuple[int, int] | None:
    """Of the device that this process works on; None on the CPU. Opens no device."""
    return torch.cuda.mem_get_info() if torch.cuda.is_initialized() else None
