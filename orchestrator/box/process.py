"""A job's process: its folder, its environment, its start and its end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.box.regular import open_regular
from orchestrator.box.spec import BoxSpec, JobSpec

# What is the agent's own: its packages, and the way to end the box.
NOT_FOR_JOBS = ("GPURUN_POWEROFF", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")


@dataclass(frozen=True)
class Place:
    """The folders of one job under the box's root."""

    root: Path
    job: str

    @property
    def folder(self) -> Path:
        return self.root / "jobs" / self.job

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def inputs(self) -> Path:
        return self.folder / "inputs"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    @property
    def stacks(self) -> Path:
        return self.folder / "stacks.txt"

    @property
    def pid_file(self) -> Path:
        return self.folder / "pid"


def unpack_workdir(root: Path, place: Place, archive: str | None) -> None:
    """Make `work` from the payload's archive, all of it or nothing; keep one that's there."""
    if place.work.exists():
        return
    part = place.folder / "work.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    if archive:
        with tarfile.open(root / archive) as packed:
            if hasattr(tarfile, "data_filter"):
                packed.extraction_filter = tarfile.data_filter
            packed.extractall(part)  # noqa: S202 - our own archive, and filtered
    part.replace(place.work)


def job_json(spec: JobSpec, place: Place) -> dict[str, Any]:
    """What a program of ours is told; `seed` is its config's."""
    return {
        "config": spec.config,
        "out": str(place.work / "out"),
        "metrics": str(place.metrics),
        "inputs": {name: str(place.inputs / name) for name in spec.inputs},
    }


def environment(
    box: BoxSpec,
    spec: JobSpec,
    place: Place,
    python: Path,
    *,
    gpu: bool,
    base: Mapping[str, str],
    secrets: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The job's environment: the box's own, its secrets, its places and its interpreter first."""
    env = {key: value for key, value in base.items() if key not in NOT_FOR_JOBS}
    env |= secrets or {}
    env |= {
        "GPURUN_RUN": box.run,
        "GPURUN_BOX": box.box,
        "GPURUN_JOB": spec.name,
        "GPURUN_OUT": str(place.work / "out"),
        "GPURUN_METRICS": str(place.metrics),
        "GPURUN_INPUTS": str(place.inputs),
        "PYTHONPATH": str(place.root / "lib"),
        "PYTHONUNBUFFERED": "1",
        "PATH": f"{python.parent}{os.pathsep}{base.get('PATH', os.defpath)}",
    }
    env.setdefault("HOME", str(place.root))
    if gpu:
        env["UNSLOTH_DISABLE_CPU_FALLBACK"] = "1"
    return env


def argv(spec: JobSpec, place: Place, python: Path) -> list[str]:
    if spec.program:
        module = f"agent_env.training.{spec.program}"
        return [str(python), "-m", module, str(place.folder / "job.json")]
    return ["bash", "--noprofile", "--norc", "-c", spec.command or ""]


class Process:
    """A running job: the leader of a session of its own, so that a signal reaches all of it."""

    def __init__(self, place: Place, command: list[str], env: Mapping[str, str]) -> None:
        (place.work / "out").mkdir(parents=True, exist_ok=True)
        place.inputs.mkdir(exist_ok=True)
        appending = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with open_regular(place.log, appending, "ab") as log:
            self._popen = subprocess.Popen(
                command,
                cwd=place.work,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._place, self._group = place, self._popen.pid
        place.pid_file.write_text(json.dumps([self._group, started_ticks(self._group)]))

    @property
    def pid(self) -> int:
        """Of its first process, which leads its session."""
        return self._group

    def exit_code(self) -> int | None:
        """None while it runs; once it has ended, what it left behind is killed."""
        code = self._popen.poll()
        if code is not None:
            signal_group(self._group, signal.SIGKILL)
            end_strays(self._place)
        return code

    def stop(self, *, hard: bool) -> None:
        signal_group(self._group, signal.SIGKILL if hard else signal.SIGTERM)


def end_leftover(place: Place, patience_s: float = 10.0) -> bool:
    """Kill what an earlier agent's job left running; whether its first process was among it."""
    end_strays(place)
    try:
        pid, ticks = json.loads(place.pid_file.read_text())
    except (OSError, ValueError):
        return False
    if ticks is None or started_ticks(pid) != ticks:
        return False
    signal_group(pid, signal.SIGKILL)
    end = time.monotonic() + patience_s
    while started_ticks(pid) == ticks and time.monotonic() < end:
        time.sleep(0.05)
    return True


def end_strays(place: Place) -> None:
    """Kill what left the job's session, known by its environment: nothing may write any more."""
    mark = f"GPURUN_OUT={place.work / 'out'}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)


def started_ticks(pid: int) -> int | None:
    """When a living process started, in ticks since boot (proc(5), field 22): pids come back."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
