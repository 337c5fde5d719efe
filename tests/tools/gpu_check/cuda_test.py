"""What the step CUDA says of a GPU it can't use; torch itself is stood in for, no GPU is here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.gpu_check import course
from tools.gpu_check.told import Told
from tools.gpu_check.verdicts import Check

TORCH = """\
from types import SimpleNamespace
__version__ = "2.13.0"
def fail():
    raise RuntimeError("CUDA error: out of memory\\nCompile with `TORCH_USE_CUDA_DSA`")
cuda = SimpleNamespace(is_available=lambda: {there}, mem_get_info=lambda: {memory})
"""


@pytest.mark.parametrize(
    ("there", "memory", "seen"),
    [
        (False, "", "torch 2.13.0 sees no GPU; nvidia-smi and CUDA_VISIBLE_DEVICES say why"),
        (
            True,
            "(1 << 30, 24 << 30)",
            "1.0 of 24.0 GiB free: 2 are needed; nvidia-smi names who holds the rest",
        ),
        (True, "fail()", "torch can't use the GPU: CUDA error: out of memory"),
    ],
)
def test_a_gpu_that_cant_be_used_is_told_in_a_line(
    tmp_path: Path, there: bool, memory: str, seen: str
) -> None:
    (tmp_path / "torch.py").write_text(TORCH.format(there=there, memory=memory or "()"))
    told = tmp_path / "told.jsonl"
    code = f"import sys; sys.path[:0] = {[str(tmp_path), str(course.ROOT)]!r};"
    code += "from tools.gpu_check import cuda; sys.exit(cuda.main())"
    subprocess.run([sys.executable, "-c", code, str(told)], check=True)
    assert Told(told).checks() == [Check("CUDA", seen, "FAIL")]
