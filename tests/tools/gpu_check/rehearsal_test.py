"""The check's own lines, run on the CPU: all but what only Unsloth on a GPU can show."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.gpu_check import course
from tools.gpu_check.__main__ import main
from tools.gpu_check.names import CHECKS
from tools.gpu_check.verdicts import Check

pytestmark = [pytest.mark.trl, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the logs go, and the tiny model, which is made once."""
    return tmp_path_factory.mktemp("gpu-check")


def checked(folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """The exit status, and the checks by name."""
    written = folder / "gpu-check.json"
    status = main([*more, "--folder", str(folder), "--json", str(written)])
    checks = json.loads(written.read_text())["checks"]
    return status, {check["name"]: check for check in checks}


def test_a_rehearsal_passes_all_that_a_cpu_can_and_skips_unsloth_loudly(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, checks = checked(folder, "--rehearse", "--python", sys.executable)
    assert status == 0, checks
    trained = {name: check for name, check in checks.items() if name.startswith("TRL on the CPU")}
    assert [check["verdict"] for check in trained.values()] == ["PASS"] * len(CHECKS)
    assert "8 of 8 rollouts went on, 8 scored" in trained["TRL on the CPU: restart"]["seen"]
    assert {checks[name]["verdict"] for name in ("16-bit LoRA", "4-bit QLoRA")} == {"SKIPPED"}
    assert "NOTHING RAN ON A GPU OR UNDER UNSLOTH" in capsys.readouterr().out


def test_nothing_that_unsloth_rewrites_is_imported_before_it() -> None:
    code = "import sys, tools.gpu_check.training; print({'trl', 'transformers'} & {*sys.modules})"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=course.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvidia-smi names one, and what is installed here is as locked."""
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'NVIDIA L4, 580.95.05, 23034 MiB'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    lock = (course.PINS / "cpu.txt").read_text() + "bitsandbytes==0.50.2\n"
    (tmp_path / "unsloth.txt").write_text(lock)
    monkeypatch.setattr(course, "PINS", tmp_path)
    monkeypatch.setattr(course, "NEEDED", course.NEEDED_ON_THE_CPU)


@pytest.mark.usefixtures("gpu")
def test_where_torch_cant_use_the_gpu_nothing_is_trained(folder: Path) -> None:
    status, checks = checked(folder)
    assert status == 1
    assert {name: check["verdict"] for name, check in checks.items()} == {
        **{"GPU and driver": "PASS", "packages": "PASS", "CUDA": "FAIL"},
        **dict.fromkeys(("tiny model", "16-bit LoRA", "4-bit QLoRA"), "SKIPPED"),
    }
    assert "sees no GPU" in checks["CUDA"]["seen"]


@pytest.mark.usefixtures("gpu")
def test_a_training_that_cant_begin_says_why(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = course.Course._step

    def usable(self: course.Course, name: str, *rest: Any) -> list[Check]:
        return [Check("CUDA", "", "PASS")] if name == "cuda" else begun(self, name, *rest)

    monkeypatch.setattr(course.Course, "_step", usable)
    _, checks = checked(folder)
    assert {name: check["verdict"] for name, check in checks.items()} == {
        **{"GPU and driver": "PASS", "packages": "PASS", "tiny model": "PASS"},
        **{f"16-bit LoRA: {name}": "FAIL" for name in CHECKS},
        "4-bit QLoRA": "SKIPPED",
    }
    assert "kept from an earlier time" in checks["tiny model"]["seen"]
    assert "No module named 'unsloth'" in checks["16-bit LoRA: config"]["seen"]
    assert "bitsandbytes isn't there" in checks["4-bit QLoRA"]["seen"]
