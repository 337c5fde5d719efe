"""Can torch use the GPU? A process of its own: a broken driver may hang or crash it."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from tools.gpu_check.told import Told

LEAST_GIB = 2.0
"""Of the GPU's memory; the tiny model needs less, and CUDA itself takes some."""


def main() -> int:
    """Multiply two matrices on the GPU and tell what it is."""
    try:
        seen, good = _seen(import_module("torch"))
    except RuntimeError as error:  # what torch makes of CUDA's own, memory included
        seen, good = f"torch can't use the GPU: {str(error).partition(chr(10))[0]}", False
    Told(Path(sys.argv[1]))("CUDA", seen, good)
    return 0


def _seen(torch: Any) -> tuple[str, bool]:
    if not torch.cuda.is_available():
        why = "nvidia-smi and CUDA_VISIBLE_DEVICES say why"
        return f"torch {torch.__version__} sees no GPU; {why}", False
    free, total = (size / 2**30 for size in torch.cuda.mem_get_info())
    room = f"{free:.1f} of {total:.1f} GiB free"
    if free < LEAST_GIB:
        return f"{room}: {LEAST_GIB:.0f} are needed; nvidia-smi names who holds the rest", False
    one = torch.ones((64, 64), device="cuda")
    right = float((one @ one).sum()) == 64.0**3
    major, minor = torch.cuda.get_device_capability()
    kind = "bfloat16" if torch.cuda.is_bf16_supported() else "no bfloat16: float16"
    cuda = f"CUDA {torch.version.cuda}, compute {major}.{minor}, {kind}, {room}"
    return f"torch {torch.__version__}, {cuda}{'' if right else '; a wrong product'}", right


if __name__ == "__main__":
    sys.exit(main())
