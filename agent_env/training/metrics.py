"""A job's metrics: JSON lines, one per step, eval and end, flushed as they are written.

A line: `{"t": epoch seconds, "step", "max_steps", "kind": "train" | "eval" | "final", …numbers…}`.
After a crash the file is cut back to the checkpoint it goes on from, so that a disturbed run's
file equals an undisturbed one's but for the times (`TIMES`).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Literal

Kind = Literal["train", "eval", "final"]
Line = dict[str, float | int | str | None]

TIMES = frozenset({"t", "seconds", "step_seconds", "eval_seconds", "env/waited_s", "gpu_gb"})
"""Keys that differ between two runs that are otherwise the same."""


class MetricsFile:
    """Appends lines to one file; several processes in turn, never two at once."""

    def __init__(self, path: Path, *, max_steps: int) -> None:
        self.path = path
        self.max_steps = max_steps
        path.parent.mkdir(parents=True, exist_ok=True)

    def append(
        self, kind: Kind, step: int, values: Mapping[str, float | int | str | None], now: datetime
    ) -> None:
        """Write one line and hand it to the disk; NaN and infinity become null."""
        with self.path.open("a") as file:
            file.write(json.dumps(self._line(kind, step, values, now)) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def replace(
        self, kind: Kind, step: int, values: Mapping[str, float | int | str | None], now: datetime
    ) -> None:
        """`append`, in the place of the lines of that kind at that step; atomically."""
        self._keep([*self._others(kind, step), self._line(kind, step, values, now)])

    def forget(self, kind: Kind, step: int) -> None:
        """Leave out the lines of that kind at that step; atomically."""
        self._keep(self._others(kind, step))

    def _others(self, kind: Kind, step: int) -> list[Line]:
        return [line for line in self.lines() if (line["kind"], line["step"]) != (kind, step)]

    def lines(self) -> list[Line]:
        """All whole lines; a last line that was cut by a crash is left out."""
        if not self.path.exists():
            return []
        parsed = (_parse(text) for text in self.path.read_text().splitlines())
        return [line for line in parsed if line is not None]

    def find(self, kind: Kind, step: int) -> Line | None:
        """The line of that kind at that step."""
        found = (line for line in self.lines() if (line["kind"], line["step"]) == (kind, step))
        return next(found, None)

    def reward_at(self, step: int) -> float | None:
        """The eval's reward at that step; None without the eval, or when none was scored."""
        reward = (self.find("eval", step) or {}).get("reward")
        return float(reward) if isinstance(reward, float | int) else None

    def cut_back(self, step: int) -> None:
        """Forget everything after `step`, and any end; atomically."""
        self._keep([line for line in self.lines() if _reaches(line, step)])

    def _line(
        self, kind: Kind, step: int, values: Mapping[str, float | int | str | None], now: datetime
    ) -> Line:
        line: Line = {"t": round(now.timestamp(), 3), "step": step, "max_steps": self.max_steps}
        return line | {"kind": kind} | {key: _plain(value) for key, value in values.items()}

    def _keep(self, kept: Iterable[Line]) -> None:
        fresh = self.path.with_suffix(".tmp")
        with fresh.open("w") as file:
            file.writelines(json.dumps(line) + "\n" for line in kept)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)


def _reaches(line: Line, step: int) -> bool:
    at = line["step"]
    return line["kind"] != "final" and isinstance(at, int) and at <= step


def _plain(value: float | int | str | None) -> float | int | str | None:
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


def _parse(text: str) -> Line | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) and {"kind", "step"} <= line.keys() else None
