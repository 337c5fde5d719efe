"""A training process without a process: it writes what a trainer writes, as time passes.

`sim STEPS`: a step each 20 s; a metrics line and a log line per step; a checkpoint each third
step, its marker last; at the end `out/model` and a final metrics line. It goes on from the newest
checkpoint in its folder, and answers SIGTERM with a checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.box.process import Place

STEP_S = 20.0
CHECKPOINT_EVERY = 3


@dataclass(frozen=True)
class Written:
    """A file as it was from `at` (true epoch seconds) on; `name` as a manifest has it."""

    at: float
    job: str
    name: str
    data: bytes


@dataclass
class Trainer:
    """Stands in for orchestrator.box.process.Process."""

    place: Place
    job: str
    steps: int
    now: Callable[[], float]
    """True epoch seconds: work goes on whatever the box's clock says."""
    note: Callable[[Written], None]
    may_write: Callable[[], bool]
    pid: int = 0
    _code: int | None = None
    _next: float = 0.0
    _step: int = 0
    _told: bool = False
    _names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        (self.place.work / "out").mkdir(parents=True, exist_ok=True)
        found = [int(p.name.rpartition("-")[2]) for p in self._out.glob("checkpoint-*")]
        self._step = max(found, default=0)
        self._next = self.now() + STEP_S
        self._append(self.place.log, "log.txt", f"started at step {self._step}\n")

    @property
    def _out(self) -> Path:
        return self.place.work / "out"

    @property
    def progress(self) -> tuple[object, ...]:
        """How far it is, in so far as that matters: begun, in its middle, told, over."""
        return self.job, min(self._step, 4), self._told, self._code

    def exit_code(self) -> int | None:
        return self._code

    def stop(self, *, hard: bool) -> None:
        if hard:
            self.kill()
        else:
            self._told = True

    def kill(self) -> None:
        self._code = -signal.SIGKILL if self._code is None else self._code

    def advance(self) -> None:
        """Do what is due by now."""
        while self._code is None and self._next <= self.now() and not self._told:
            self._work()
            self._next += STEP_S
        if self._told and self._code is None:
            self._checkpoint()
            self._code = 0

    def _work(self) -> None:
        if not self.may_write():
            self._code = 1
            return
        self._step += 1
        line = json.dumps({"step": self._step, "max_steps": self.steps, "reward": 0.5})
        self._append(self.place.metrics, "metrics.jsonl", line + "\n")
        self._append(self.place.log, "log.txt", f"step {self._step}\n")
        if self._step % CHECKPOINT_EVERY == 0:
            self._checkpoint()
        if self._step >= self.steps:
            self._write(self._out / "model", "out/model", f"model {self._step}".encode())
            final = json.dumps({"kind": "final", "step": self._step, "reward": 0.9})
            self._append(self.place.metrics, "metrics.jsonl", final + "\n")
            self._code = 0

    def _checkpoint(self) -> None:
        folder = self._out / f"checkpoint-{self._step}"
        if folder.exists() or not self.may_write():
            return
        folder.mkdir()
        base = f"out/{folder.name}"
        weights = f"weights {self.job} {self._step}".encode()
        self._write(folder / "adapter", f"{base}/adapter", weights)
        state = json.dumps({"global_step": self._step}).encode()
        self._write(folder / "trainer_state.json", f"{base}/trainer_state.json", state)

    def _append(self, path: Path, name: str, text: str) -> None:
        data = path.read_bytes() if path.exists() else b""
        self._write(path, name, data + text.encode())

    def _write(self, path: Path, name: str, data: bytes) -> None:
        if not self.may_write():
            return
        path.write_bytes(data)
        os.utime(path, (self.now(), self.now()))
        self.note(Written(self.now(), self.job, name, data))
