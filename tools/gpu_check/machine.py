"""What is here before anything is installed: the GPU, its driver, an interpreter, the packages."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

DRIVER = 580
"""The oldest driver branch that CUDA 13 runs on."""
PYTHON = (3, 12)
"""What the lock is for."""
ASK_S = 30.0

_LOCKED = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)", re.MULTILINE)


class NoGpu(Exception):
    """There is no NVIDIA GPU that answers; the message says what is missing."""


@dataclass(frozen=True)
class Gpu:
    """The first GPU, in nvidia-smi's words."""

    name: str
    driver: str
    memory: str

    @property
    def driver_is_new_enough(self) -> bool:
        return int(self.driver.split(".")[0]) >= DRIVER

    def __str__(self) -> str:
        wanted = "" if self.driver_is_new_enough else f"; CUDA 13 wants {DRIVER} or newer"
        return f"{self.name}, {self.memory}, driver {self.driver}{wanted}"


def find_gpu() -> Gpu:
    """The first GPU that nvidia-smi names. Raises NoGpu."""
    if shutil.which("nvidia-smi") is None:
        raise NoGpu("nvidia-smi isn't on the PATH: no NVIDIA driver is installed")
    query = ["--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    told = _said(["nvidia-smi", *query])
    fields = [part.strip() for part in told.splitlines()[0].split(",")] if told else []
    if len(fields) != 3 or not fields[1].split(".")[0].isdigit():
        raise NoGpu(f"nvidia-smi answers {told.strip()!r}: no GPU, or a driver that doesn't run")
    return Gpu(*fields)


def find_python() -> str | None:
    """An interpreter of the version that the lock is for, with what makes a venv; else None."""
    for candidate in (sys.executable, *_pythons()):
        said = _said([candidate, "-c", "import ensurepip, sys; print(*sys.version_info[:2])"])
        if said.split() == [str(part) for part in PYTHON]:
            return candidate
    return None


def differences(python: str, lock: Path, names: Sequence[str]) -> list[str]:
    """How that interpreter's packages differ from the lock, of those names; empty: as locked."""
    locked = locked_versions(lock)
    code = (
        "import importlib.metadata as m, json, sys\n"
        "found = {d.metadata['Name'].lower().replace('_', '-'): d.version"
        " for d in m.distributions()}\n"
        "print(json.dumps(found))"
    )
    told = _said([python, "-c", code])
    if not told:
        return [f"{python} can't be started"]
    here: dict[str, str] = json.loads(told)
    return list(_differences(here, {name: locked[name] for name in names}))


def locked_versions(lock: Path) -> dict[str, str]:
    """Versions by name, without what a build adds to them (`+cpu`)."""
    found = _LOCKED.findall(lock.read_text("utf-8"))
    return {name.lower().replace("_", "-"): version.split("+")[0] for name, version in found}


def free_gb(folder: Path) -> float:
    """Of the disk that the folder is on, in 10⁹ bytes."""
    return shutil.disk_usage(folder).free / 1e9


def _differences(here: dict[str, str], wanted: dict[str, str]) -> Iterator[str]:
    for name, version in wanted.items():
        has = here.get(name, "missing").split("+")[0]
        if has != version:
            yield f"{name} {has}, not {version}"


def _pythons() -> Iterator[str]:
    name = "python" + ".".join(str(part) for part in PYTHON)
    if found := shutil.which(name):
        yield found
    kept = Path.home() / ".pyenv" / "versions"
    yield from map(str, sorted(kept.glob(f"{name.removeprefix('python')}.*/bin/{name}")))


def _said(command: Sequence[str]) -> str:
    """What it prints; nothing when it can't be started, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
