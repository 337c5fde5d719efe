"""A step's process tells its checks one by one, so that those before its end count."""

from __future__ import annotations

import json
from pathlib import Path

from tools.gpu_check.verdicts import Check


class Told:
    """A file of checks, a JSON line each."""

    def __init__(self, path: Path, prefix: str = "") -> None:
        self._path = path
        self._prefix = prefix

    def __call__(self, name: str, seen: str, good: bool) -> None:
        """Add a check of that name; `good` is its verdict."""
        verdict = "PASS" if good else "FAIL"
        line = {"name": self._prefix + name, "seen": seen, "verdict": verdict}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def checks(self) -> list[Check]:
        """All that was told so far; a line that was cut short is left out."""
        if not self._path.is_file():
            return []
        lines = self._path.read_text("utf-8").split("\n")[:-1]
        return [Check(**json.loads(line)) for line in lines]
