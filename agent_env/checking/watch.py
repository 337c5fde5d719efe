"""Probes side by side, each watched: what it is at, and for how long."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_env.checking.clock import ZONE

STEP_S = 30.0
"""What a single step, import or call of tasks() may take."""

_LOOK_EVERY_S = 0.02

_START = "its start"

Line = dict[str, Any]
Progress = Callable[[int, int, str], None]
"""Called many times a second with tasks played, tasks to play (0: unknown), and what it is at."""


@dataclass(frozen=True)
class Setting:
    """What is different in one process."""

    hash_seed: str
    ahead: bool
    """With another clock."""


@dataclass
class Watched:
    """One process and what it told."""

    process: subprocess.Popen[bytes]
    out: Path
    error: Path
    lines: list[Line] = field(default_factory=list)
    """All but those that say what it is at."""
    task: str = ""
    """The task that was begun last, if it never ended."""
    at: str = _START
    since: float = field(default_factory=time.monotonic)
    late: str = ""
    """Why it was ended."""
    _read: int = 0

    def look(self) -> None:
        """Take in what it wrote since the last look: whole lines, a killed process leaves half."""
        with self.out.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        for text in whole.splitlines():
            self.since = time.monotonic()
            self._saw(json.loads(text))

    def _saw(self, line: Line) -> None:
        if "at" in line:
            self.at = line["at"]
            return
        self.lines.append(line)
        self.task = line.get("begins", "")

    def end(self, why: str) -> None:
        self.process.kill()
        self.process.wait()
        self.late = why

    @property
    def played(self) -> int:
        return sum("plays" in line for line in self.lines)

    @property
    def last_words(self) -> str:
        said = self.error.read_text(errors="replace").strip().splitlines()
        return said[-1] if said else "no message"


def watched(
    ref: str,
    sample: int,
    settings: Sequence[Setting],
    folder: Path,
    *,
    timeout_s: float,
    step_s: float = STEP_S,
    progress: Progress | None = None,
) -> list[Watched]:
    """Run a probe in each setting until all have ended, or were ended for being late.

    What they write stays in `folder`.
    """
    runs: list[Watched] = []
    try:
        for setting in settings:
            runs.append(_start(ref, sample, setting, folder / f"{len(runs)}"))
        deadline = time.monotonic() + timeout_s
        while waiting := [run for run in runs if _running(run, step_s, timeout_s, deadline)]:
            if progress is not None:
                progress(runs[0].played, _total(runs[0]), _where(waiting[0]))
            _pause(waiting[0])
    finally:
        for run in runs:
            run.process.kill()
            run.process.wait()
    return runs


def _start(ref: str, sample: int, setting: Setting, base: Path) -> Watched:
    out, error = base.with_suffix(".out"), base.with_suffix(".err")
    # The child must find what the parent could import, and nothing else.
    path = os.pathsep.join(folder or str(Path.cwd()) for folder in sys.path)
    variables = [f"PYTHONPATH={path}", f"PYTHONHASHSEED={setting.hash_seed}"]
    variables += [f"TZ={ZONE}"] if setting.ahead else []
    probe = [sys.executable, "-P", "-m", "agent_env.checking.probe"]
    command = ["env", *variables, *probe, ref, str(sample), str(int(setting.ahead))]
    with out.open("wb") as told, error.open("wb") as complained:
        process = subprocess.Popen(
            command, stdout=told, stderr=complained, stdin=subprocess.DEVNULL
        )
    return Watched(process, out, error)


def _running(run: Watched, step_s: float, timeout_s: float, deadline: float) -> bool:
    if run.late:
        return False
    ended = run.process.poll() is not None
    run.look()
    now = time.monotonic()
    if ended:
        return False
    # Python's own start isn't the bundle's doing: a busy machine takes seconds for it.
    if now - run.since > step_s and run.at != _START:
        run.end(f"{run.at} was not over after {step_s:g} s")
    elif now > deadline:
        run.end(f"it was not over after {timeout_s:g} s, and was at {run.at}")
    return not run.late


def _pause(run: Watched) -> None:
    with suppress(subprocess.TimeoutExpired):
        run.process.wait(_LOOK_EVERY_S)


def _total(run: Watched) -> int:
    return sum(line.get("sampled", 0) for line in run.lines)


def _where(run: Watched) -> str:
    return f"{run.task}: {run.at}" if run.task else run.at
