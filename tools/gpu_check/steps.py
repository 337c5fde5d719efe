"""A step: a process with a time limit, and the checks that it owes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tools.gpu_check.told import Told
from tools.gpu_check.verdicts import Check, failed, skipped

GRACE_S = 5.0
"""From SIGTERM to SIGKILL."""
LEAST_S = 5.0
"""With less time than this left, a step isn't begun."""

ONE_GPU = {"CUDA_VISIBLE_DEVICES": "0"}
"""Unless somebody has chosen: on several the trainer would spread its batch over all."""

Found = Callable[[], tuple[str, bool]]


@dataclass(frozen=True)
class Step:
    """What to run, how long it may take, and what it must tell, by name."""

    name: str
    command: Sequence[str]
    limit_s: float
    owes: Sequence[str]
    found: Found | None = None
    """Looks at what the process left and says what its only check has seen; without it, the
    process tells its checks itself."""
    skip: str | None = None
    """Why it can't be run here."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Deadline:
    """The end of everything, by time.monotonic()."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        return max(0.0, self.at - time.monotonic())


def run_step(step: Step, folder: Path, deadline: Deadline) -> list[Check]:
    """Run it in `folder` and judge it: each check that it owes and didn't tell has failed."""
    if step.skip:
        return [skipped(name, step.skip) for name in step.owes]
    left_s = deadline.left_s - GRACE_S
    if left_s < LEAST_S:
        why = "no time was left; started again, it finds what was installed and goes on sooner"
        return [failed(name, why) for name in step.owes]
    told = Told(folder / f"{step.name}.jsonl")
    trouble = _run(step, folder, min(step.limit_s, left_s))
    if step.found and trouble is None:
        seen, good = step.found()
        return [Check(name, seen, "PASS" if good else "FAIL") for name in step.owes]
    checks = told.checks()
    missing = set(step.owes) - {check.name for check in checks}
    why = trouble or "the step ended well and told nothing of it"
    return checks + [failed(name, why) for name in step.owes if name in missing]


def _run(step: Step, folder: Path, limit_s: float) -> str | None:
    """What went wrong with the process; None when it ended well."""
    (folder / f"{step.name}.jsonl").unlink(missing_ok=True)
    log = folder / f"{step.name}.log"
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                list(step.command),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                env=ONE_GPU | os.environ | dict(step.environment),  # noqa: TID251 - handed down
            )
        except OSError as error:
            return f"can't be started: {error}"
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            at = last_line(log)
            return f"ended after its {limit_s:.0f} s, at: {at} ({log})"
        finally:
            _end(process)
    return f"exit status {status}: {last_line(log)} ({log})" if status else None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask it if it still runs, then kill it and what it left, so that the GPU is free again."""
    try:
        if process.poll() is None:
            process.terminate()
            process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def last_line(log: Path) -> str:
    """The last line of a log that says something, shortened."""
    lines = log.read_text("utf-8", "replace").replace("\r", "\n").splitlines()
    said = [line.strip() for line in lines if line.strip()]
    return said[-1][:300] if said else "it said nothing"
