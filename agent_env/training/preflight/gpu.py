"""Is there the NVIDIA GPU that was asked for? The driver's file is looked at before torch is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

DRIVER = (Path("/proc/driver/nvidia/version"), Path("/dev/dxg"))
"""One of them is there where the driver is; the second is that of WSL."""


def has_driver() -> bool:
    """Whether this machine has an NVIDIA driver."""
    return any(path.exists() for path in DRIVER)


def gpu_faults(settings: Sequence[str]) -> Iterator[str]:
    """A sentence for each of the settings, all of which need a GPU, if none can be had."""
    if not settings:
        return
    if not has_driver():
        why = f"this machine has no driver ({DRIVER[0]}): run it where one is"
    elif (torch := import_module("torch")).cuda.is_available():
        return
    else:
        why = (
            f"torch {torch.__version__} can't use one here: `nvidia-smi` says whether the driver"
            " works, CUDA_VISIBLE_DEVICES may hide it, and a +cpu build of torch never can"
        )
    yield from (f"{name}: needs an NVIDIA GPU, and {why}, or leave it out" for name in settings)
