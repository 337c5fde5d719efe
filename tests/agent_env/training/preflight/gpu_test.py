"""CUDA asked for without a GPU is told at once, before unsloth or torch is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_env.training.config import ConfigError, GrpoConfig, parse_config
from agent_env.training.preflight import check_machine, gpu
from agent_env.training.preflight.gpu import gpu_faults, has_driver
from tests.agent_env.training.preflight.source_test import model
from tests.agent_env.training.preflight.versions_test import ROOT, package


def standin(folder: Path, name: str, text: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(text)


def unsloth(folder: Path) -> Path:
    """An unsloth that writes down that it was imported, and how; returns what it writes."""
    for name, version in [("trl", "1.15.0"), ("transformers", "5.17.0"), ("unsloth", "2026.10.9")]:
        package(folder, name, version)
    note = folder / "imported"
    told = "os.environ.get('UNSLOTH_DISABLE_CPU_FALLBACK', '')"
    standin(
        folder, "unsloth", f"import os, pathlib\npathlib.Path({str(note)!r}).write_text({told})"
    )
    return note


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(has_driver(), reason="this machine has a GPU")
def test_a_job_that_asks_for_unsloth_without_a_gpu_ends_before_unsloth_is_imported(
    tmp_path: Path,
) -> None:
    note = unsloth(tmp_path)
    values = {
        "config": {"unsloth": True, "model": str(model(tmp_path / "model"))},
        "out": str(tmp_path / "out"),
        "metrics": str(tmp_path / "metrics.jsonl"),
    }
    (tmp_path / "job.json").write_text(json.dumps(values))
    done = run(tmp_path, "-m", "agent_env.training.grpo", str(tmp_path / "job.json"))
    assert done.returncode == 2
    assert done.stderr == (
        "config.unsloth: needs an NVIDIA GPU, and this machine has no driver"
        " (/proc/driver/nvidia/version): run it where one is, or leave it out\n"
    )
    assert not note.exists()


def test_unsloth_may_never_fall_back_to_the_cpu_in_a_job(tmp_path: Path) -> None:
    note = unsloth(tmp_path)
    call = "settle_process(source='a/model', unsloth=True)"
    done = run(tmp_path, "-c", f"from agent_env.training.process import *; {call}")
    assert done.returncode == 0, done.stderr
    assert note.read_text() == "1"


@pytest.mark.parametrize(("works", "said"), [(True, []), (False, ["config.unsloth"])])
def test_a_driver_that_torch_cant_use_is_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool, said: list[str]
) -> None:
    (tmp_path / "version").touch()
    monkeypatch.setattr(gpu, "DRIVER", (tmp_path / "version",))
    text = f"__version__ = '2.13.0'\nclass cuda:\n    is_available = lambda: {works}\n"
    standin(tmp_path, "torch", text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    try:
        faults = list(gpu_faults(["config.unsloth"]))
    finally:
        sys.modules.pop("torch", None)  # for good: scipy would take it for the real one
    assert [fault.split(":")[0] for fault in faults] == said
    assert all("torch 2.13.0 can't use one here: `nvidia-smi`" in fault for fault in faults)


def test_what_needs_no_gpu_asks_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "DRIVER", (tmp_path / "none",))
    monkeypatch.syspath_prepend(tmp_path)
    for name, version in [("trl", "1.16.0"), ("transformers", "5.17.0"), ("peft", "0.21.2")]:
        package(tmp_path, name, version)
    package(tmp_path, "bitsandbytes", "0.50.2")
    source = str(model(tmp_path / "model"))
    check_machine(source, parse_config(GrpoConfig, {"model": source, "lora": True}))
    four_bit = parse_config(GrpoConfig, {"model": source, "lora": {"four_bit": True}})
    with pytest.raises(ConfigError, match=r"^config\.lora\.four_bit: needs an NVIDIA GPU"):
        check_machine(source, four_bit)
