"""Environments from hash-locked wheels, by pip and by uv, with no index in reach."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from orchestrator.box.install import InstallFailed, NoGpu, install, python_of
from orchestrator.box.spec import Pins

UV = Path(sys.executable).with_name("uv")
TOOLS = f"{Path(sys.executable).parent}{os.pathsep}/usr/bin{os.pathsep}/bin"


def wheel(folder: Path, name: str) -> tuple[Path, str]:
    """A wheel of one module, and the sha256 of its file."""
    folder.mkdir(parents=True, exist_ok=True)
    path, info = folder / f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": f"WORD = {name!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{n},sha256={_b64(text.encode())},{len(text)}" for n, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""])
    with zipfile.ZipFile(path, "w") as packed:
        for inside, text in files.items():
            packed.writestr(inside, text)
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


class Machine:
    """A box's root with one set of pins, and a wheel folder."""

    def __init__(self, folder: Path, *, gpu: bool = False) -> None:
        self.root, self.wheels = folder / "root", folder / "wheels"
        _, sha256 = wheel(self.wheels / "cpu", "word")
        self.lock = self.root / "pins" / "cpu.txt"
        self.lock.parent.mkdir(parents=True)
        self.lock.write_text(f"word==1.0 --hash=sha256:{sha256}\n")
        self.gpu = gpu

    @property
    def pins(self) -> Pins:
        sha256 = hashlib.sha256(self.lock.read_bytes()).hexdigest()
        return Pins("cpu", "pins/cpu.txt", sha256, self.gpu, None)

    def install(self) -> None:
        install(self.root, self.pins, self.wheels)

    def says(self) -> str:
        ask = [str(python_of(self.root, self.pins)), "-c", "import word; print(word.WORD)"]
        return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("installer", ["pip", "uv", "uv from its wheel"])
def test_pins_become_an_environment_without_any_index(
    machine: Machine, installer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if installer == "uv":
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "uv").symlink_to(UV)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    else:
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
    if installer == "uv from its wheel":
        with zipfile.ZipFile(machine.wheels / "cpu" / "uv-9.9-py3-none-any.whl", "w") as packed:
            packed.writestr("uv-9.9.data/scripts/uv", f'#!/bin/sh\nexec {UV} "$@"\n')
    machine.install()
    assert machine.says() == "word"
    assert (machine.root / "tools" / "uv").exists() == (installer == "uv from its wheel")


def test_an_environment_is_made_once_and_again_only_for_other_pins(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", TOOLS)
    machine.install()
    shutil.rmtree(machine.wheels)
    machine.install()
    assert machine.says() == "word"
    machine.lock.write_text(machine.lock.read_text() + "# another lock\n")
    with pytest.raises(InstallFailed, match="isn't there"):
        machine.install()
    assert not (machine.root / "venvs" / "cpu" / ".installed").exists()


def test_a_wheel_with_another_hash_is_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", TOOLS)
    machine.lock.write_text("word==1.0 --hash=sha256:" + "0" * 64 + "\n")
    with pytest.raises(InstallFailed, match=r"[Hh]ash mismatch"):
        machine.install()


@pytest.mark.parametrize("path", [TOOLS, "/usr/bin:/bin"], ids=["uv", "pip"])
def test_a_source_archive_is_not_built_even_with_the_right_hash(
    machine: Machine, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", path)
    (tmp_path / "setup.py").write_text("from setuptools import setup; setup(name='word')")
    (archive := machine.wheels / "cpu" / "word-1.0.tar.gz").touch()
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(tmp_path / "setup.py", "word-1.0/setup.py")
    (machine.wheels / "cpu" / "word-1.0-py3-none-any.whl").unlink()
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    machine.lock.write_text(f"word==1.0 --hash=sha256:{sha256}\n")
    with pytest.raises(InstallFailed, match=r"no usable wheels|distribution found for word"):
        machine.install()


def test_pins_that_arent_those_of_the_plan_are_refused(machine: Machine) -> None:
    pins = machine.pins
    machine.lock.write_text(machine.lock.read_text() + "\n")
    with pytest.raises(InstallFailed, match="has sha256"):
        install(machine.root, pins, machine.wheels)


@pytest.mark.parametrize("smi", [None, "exit 9", "true"])
def test_pins_that_need_a_gpu_fail_before_installing_where_no_driver_answers(
    tmp_path: Path, smi: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, gpu=True)
    _put_smi(tmp_path, smi, monkeypatch)
    with pytest.raises(NoGpu, match="NVIDIA driver"):
        machine.install()
    assert not (machine.root / "venvs").exists()


def test_a_driver_is_not_enough_where_torch_cant_use_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, gpu=True)
    _put_smi(tmp_path, "echo NVIDIA L4, 595.71", monkeypatch)
    with pytest.raises(NoGpu, match="of no use to torch"):
        machine.install()
    assert not (machine.root / "venvs" / "cpu" / ".installed").exists()


def _put_smi(folder: Path, smi: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = folder / "bin"
    tools.mkdir()
    (tools / "uv").symlink_to(UV)
    if smi is not None:
        (tools / "nvidia-smi").write_text(f"#!/bin/sh\n{smi}\n")
        (tools / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/nowhere")
