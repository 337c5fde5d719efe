"""Follows a job's metrics.jsonl, line by line as it grows."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from orchestrator.box.regular import NotRegular, open_regular

# A whole number beyond any float can be written as JSON, but no reader can compare or show it.
MOST = 10**300
NO_METRIC = ("t", "step", "max_steps", "kind")


@dataclass
class Progress:
    """`metrics` are the values of the `final` line once there is one, else of the newest line.

    A program that goes on from a checkpoint may put a shorter file in the old one's place: then
    it's read from its start.
    """

    path: Path
    step: int | None = None
    max_steps: int | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    moves: int = 0
    """How often the step became another; what is told again doesn't count."""
    _final: bool = False
    _offset: int = 0
    _inode: int = 0

    def read(self) -> None:
        """Take in what was appended; half a line waits, a line that isn't JSON is passed over."""
        try:
            with open_regular(self.path) as file:
                self._start_over_if_new(os.fstat(file.fileno()))
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            self._take(line)

    def _start_over_if_new(self, seen: os.stat_result) -> None:
        if seen.st_ino != self._inode or seen.st_size < self._offset:
            self._inode, self._offset, self._final = seen.st_ino, 0, False

    def mend(self) -> None:
        """End a line that a killed process left half, so that the next one starts afresh."""
        try:
            with open_regular(self.path, os.O_RDWR, "rb+") as file:
                if file.seek(0, 2) and not _ends_well(file):
                    file.write(b"\n")
        except (FileNotFoundError, NotRegular):
            pass

    def _take(self, line: bytes) -> None:
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(said, dict):
            return
        before, self.step = self.step, _whole(said.get("step"), self.step)
        self.moves += self.step != before
        self.max_steps = _whole(said.get("max_steps"), self.max_steps)
        final = said.get("kind") == "final"
        if final or not self._final:
            self._final = final
            told = {name: value for name, value in said.items() if name not in NO_METRIC}
            self.metrics = {k: v for k, v in told.items() if _is_text(k) and _is_plain(v)}


def _ends_well(file: IO[bytes]) -> bool:
    file.seek(-1, 2)
    return file.read(1) == b"\n"


def _whole(value: Any, otherwise: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return abs(value) <= MOST
    return value is None or (isinstance(value, str) and len(value) < 200 and _is_text(value))


def _is_text(value: str) -> bool:
    """JSON can spell half a character, which no terminal and no file takes."""
    return not any("\ud800" <= char <= "\udfff" for char in value)
