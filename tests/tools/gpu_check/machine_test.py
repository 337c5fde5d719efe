"""What the check says on a machine that lacks something."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.pins import pin_sizes
from tools.gpu_check import course, machine, names
from tools.gpu_check.__main__ import main
from tools.gpu_check.steps import Deadline

GPU = "NVIDIA L4, {driver}, 23034 MiB"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty PATH and an empty home."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(course, "VENV", tmp_path / "venv")
    return folder


def install_nvidia_smi(path: Path, says: str) -> None:
    script = path / "nvidia-smi"
    script.write_text(f"#!{sys.executable}\nprint({says!r})\n")
    script.chmod(0o755)


def test_without_a_gpu_it_says_at_once_what_runs_instead(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--folder", str(tmp_path), "--json", str(tmp_path / "gpu-check.json")]) == 3
    told = capsys.readouterr().err
    assert "nvidia-smi isn't on the PATH" in told
    assert {"make gpu-proof", "make gpu-check REHEARSE=1"} <= {
        line.strip().split("   ")[0] for line in told.splitlines()
    }
    assert not (tmp_path / "gpu-check.json").exists()


def test_a_driver_that_doesnt_run_is_no_gpu(path: Path) -> None:
    install_nvidia_smi(path, "No devices were found")
    with pytest.raises(machine.NoGpu, match="No devices were found"):
        machine.find_gpu()


@pytest.mark.parametrize(("driver", "good"), [("570.86.15", False), ("580.95.05", True)])
def test_the_driver_must_be_one_that_cuda_13_runs_on(path: Path, driver: str, good: bool) -> None:
    install_nvidia_smi(path, GPU.format(driver=driver))
    gpu = machine.find_gpu()
    assert gpu.driver_is_new_enough == good
    assert ("wants 580" in str(gpu)) != good


def test_without_the_packages_and_the_python_for_them_the_rest_is_skipped(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install_nvidia_smi(path, GPU.format(driver="580.95.05"))
    written = tmp_path / "gpu-check.json"
    assert main(["--folder", str(tmp_path), "--json", str(written)]) == 1
    result = json.loads(written.read_text())
    verdicts = {check["name"]: check["verdict"] for check in result["checks"]}
    assert verdicts.pop("GPU and driver") == "PASS"
    assert verdicts.pop("packages") == "FAIL"
    assert set(verdicts) == {"CUDA", "tiny model", "16-bit LoRA", "4-bit QLoRA"}
    assert set(verdicts.values()) == {"SKIPPED"}
    assert (result["exit_status"], result["rehearsal"]) == (1, False)
    assert "the lock is for Python 3.12, and none with venv is here" in " ".join(
        capsys.readouterr().out.split()
    )


def checked(path: Path, folder: Path, driver: str) -> dict[str, str]:
    """What each check has seen."""
    install_nvidia_smi(path, GPU.format(driver=driver))
    written = folder / "gpu-check.json"
    assert main(["--folder", str(folder), "--json", str(written)]) == 1
    return {check["name"]: check["seen"] for check in json.loads(written.read_text())["checks"]}


def test_with_a_driver_too_old_nothing_is_installed_or_tried(path: Path, tmp_path: Path) -> None:
    seen = checked(path, tmp_path, "570.86.15")
    assert "CUDA 13 wants 580 or newer" in seen.pop("GPU and driver")
    assert seen.keys() == {"packages", "CUDA", "tiny model", "16-bit LoRA", "4-bit QLoRA"}
    assert set(seen.values()) == {"the driver is too old"}


def test_what_trains_is_not_tried_where_torch_cant_use_the_gpu(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(course.Course, "_interpreter", lambda *_: sys.executable)
    seen = checked(path, tmp_path, "580.95.05")
    assert "No module named 'torch'" in seen.pop("CUDA")
    assert seen.pop("GPU and driver").startswith("NVIDIA L4")
    assert seen == dict.fromkeys(
        ("tiny model", "16-bit LoRA", "4-bit QLoRA"), "torch can't use the GPU"
    )


def test_a_disk_without_room_is_told_before_anything_is_downloaded(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "PYTHON", sys.version_info[:2])
    monkeypatch.setattr(course, "ROOM_GB", 10**9)
    seen = checked(path, tmp_path, "580.95.05")
    assert re.fullmatch(
        rf"{re.escape(str(tmp_path))} has [0-9.]+ GB free, the packages take {10**9}: make room,"
        " or name an interpreter that has them with PYTHON=",
        seen["packages"],
    )
    assert not course.VENV.exists()


def test_the_room_that_is_asked_for_is_what_the_stack_takes() -> None:
    assert float(pin_sizes()["unsloth"].disk_gb) == course.ROOM_GB


def test_a_tiny_model_whose_making_was_cut_short_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(course, "MODEL_S", 0.01)
    checks = course.Course(tmp_path, Deadline.after(60))
    out = checks.model_folder
    (out / "model").mkdir(parents=True)
    (out / "model" / "config.json").touch()
    (out / "metrics.jsonl").write_text('{"kind": "train", "step": 50}\n')
    checks.on_the_cpu(sys.executable)
    made = {check.name: check for check in checks.checks}["tiny model"]
    assert (made.verdict, "ended after its 0 s" in made.seen) == ("FAIL", True)


def test_a_python_that_cant_make_an_environment_is_none(path: Path) -> None:
    python = path / "python3.12"
    python.write_text('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1; esac\necho 3 12\n')
    python.chmod(0o755)
    assert machine.find_python() is None


def test_the_table_is_shown_where_it_cant_be_written(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install_nvidia_smi(path, GPU.format(driver="570.86.15"))
    assert main(["--folder", str(tmp_path), "--json", str(tmp_path / "not" / "there")]) == 1
    told = capsys.readouterr().out
    assert "GPU and driver" in told
    assert "not written: " in told.splitlines()[-1]


def test_it_starts_where_no_package_is_installed(path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(course.ROOT)!r}); import tools.gpu_check.__main__"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


def test_a_package_of_another_version_is_named(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("pytest==0.1 \\\n    --hash=sha256:00\nno-such-package==1.0\n")
    wrong = machine.differences(sys.executable, lock, ["pytest", "no-such-package"])
    assert wrong == [f"pytest {pytest.__version__}, not 0.1", "no-such-package missing, not 1.0"]


def test_every_package_that_is_compared_is_locked() -> None:
    for lock, needed in (("unsloth", course.NEEDED), ("cpu", course.NEEDED_ON_THE_CPU)):
        assert set(needed) <= machine.locked_versions(course.PINS / f"{lock}.txt").keys()


def test_the_page_has_the_checks_and_their_limits() -> None:
    page = (course.ROOT / "docs" / "gpu-check.md").read_text("utf-8")
    limits = {
        row[0]: int(row[1]) for row in re.findall(r"^\| `([^`]+)` \|.*\| (\d+) \|$", page, re.M)
    }
    assert limits == {
        "GPU and driver": machine.ASK_S,
        "packages": course.VENV_S + course.INSTALL_S,
        "CUDA": course.CUDA_S,
        "tiny model": course.MODEL_S,
        names.TITLE["lora"]: course.TRAINING_S["lora"],
        names.TITLE["qlora"]: course.TRAINING_S["qlora"],
    }
    assert re.findall(r"^\| `(\w+)` \|[^|]+\|$", page, re.M) == list(names.CHECKS)
