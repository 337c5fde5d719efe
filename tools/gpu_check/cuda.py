"""Can torch use the GPU? A process of its own: a broken driver may hang or crash it."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from tools.gpu_check.told import Told


def main() -> int:
    """Multiply two matrices on the GPU and tell what it is."""
    torch = import_module("torch")
    if not torch.cuda.is_available():
        seen = (
            f"torch {torch.__version__} sees no GPU; nvidia-smi and CUDA_VISIBLE_DEVICES say why"
        )
        Told(Path(sys.argv[1]))("CUDA", seen, False)
        return 0
    one = torch.ones((64, 64), device="cuda")
    right = float((one @ one).sum()) == 64.0**3
    major, minor = torch.cuda.get_device_capability()
    kind = "bfloat16" if torch.cuda.is_bf16_supported() else "no bfloat16: float16"
    seen = f"torch {torch.__version__}, CUDA {torch.version.cuda}, compute {major}.{minor}, {kind}"
    Told(Path(sys.argv[1]))("CUDA", seen if right else f"{seen}; a wrong product", right)
    return 0


if __name__ == "__main__":
    sys.exit(main())
