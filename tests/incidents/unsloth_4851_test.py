"""unslothai/unsloth#4851 and #5827, LlamaFactory#10593: a stack resolved anew breaks overnight.

There: unsloth, vllm and torch cap each other. An install picks what the index has that day, CUDA
builds for another driver included, and the break shows in mid-training, or not at all.
Here: what a box installs is named by version and hash, and nothing else is looked for: pip and uv
get `--require-hashes --no-deps`. An altered lock, another wheel and a requirement without a hash
each end before training; and the lock's own conflicts are found where it is made.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from orchestrator.box import install as install_module
from orchestrator.box.install import InstallFailed
from orchestrator.pins import PINS_FOLDER, known_pins
from tests.orchestrator.box.install_test import UV, Machine, wheel

TOOLS = f"{Path(sys.executable).parent}{os.pathsep}/usr/bin{os.pathsep}/bin"
LINKED = re.compile(r"nvidia-(cudnn|nccl|cusparselt|nvshmem)-cu\d+$")
STACK = ("torch", "unsloth", "vllm", "trl", "transformers")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("PATH", TOOLS)
    return Machine(tmp_path)


@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_the_installer_is_told_to_resolve_nothing(
    machine: Machine, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[list[str]] = []

    def note(argv: list[str], _: float) -> str:
        said.append(list(argv))
        return ""

    monkeypatch.setattr(install_module, "_run", note)
    monkeypatch.setattr(install_module, "_uv", lambda *_: UV if tool == "uv" else None)
    (machine.root / "venvs" / "cpu").mkdir(parents=True)
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    machine.install()
    (installs,) = [argv for argv in said if "install" in argv]
    assert {"--require-hashes", "--no-deps"} <= set(installs)


def test_a_newer_wheel_in_the_index_is_not_taken(machine: Machine) -> None:
    newer, _ = wheel(machine.wheels / "cpu", "word")  # the same version, built anew
    newer.write_bytes(newer.read_bytes() + b"\0")
    with pytest.raises(InstallFailed, match=r"[Hh]ash"):
        machine.install()
    assert not (machine.root / "venvs" / "cpu" / ".installed").exists()


@pytest.mark.parametrize("drift", ["word>=1.0\n", "word==1.0\n"])
def test_a_requirement_without_a_hash_ends_before_training(machine: Machine, drift: str) -> None:
    machine.lock.write_text(drift)
    with pytest.raises(InstallFailed, match=r"(?i)hash"):
        machine.install()


def test_a_lock_that_changed_since_the_plan_ends_before_training(machine: Machine) -> None:
    pins = machine.pins
    machine.lock.write_text(machine.lock.read_text() + "# drift\n")
    with pytest.raises(InstallFailed, match="has sha256"):
        install_module.install(machine.root, pins, machine.wheels)


def test_each_of_the_stack_is_locked_once_and_what_torch_links_is_of_one_cuda() -> None:
    pins = known_pins()["unsloth"]
    text = (PINS_FOLDER / pins.file).read_text()
    locked = re.findall(r"^([a-z0-9._-]+)==(\S+)", text, re.M)
    for name in STACK:
        assert len([version for its, version in locked if its == name]) == 1, name
    linked = {its.rpartition("-cu")[2] for its, _ in locked if LINKED.match(its)}
    (runtime,) = [version for its, version in locked if its == "nvidia-cuda-runtime"]
    assert linked == {runtime.partition(".")[0]}
    assert f"CUDA {runtime.partition('.')[0]}" in pins.description
