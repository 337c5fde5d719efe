"""A bundle that writes down each call it carries out, as the trainers' common judge.

`CONFORMANCE_LOG` names a folder; each case has a file there, begun anew at its reset, so that a
server that rebuilds an episode writes what it would have written without.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_env import Bundle, Task, TaskData, tool
from agent_env.errors import ToolError

TARGET = 10
CASES = 16


class Adder(Task):
    """Add up to ten."""

    quick = True

    def reset(self, seed: int | None) -> str | None:
        self.total = 0
        self._log = Path(os.environ["CONFORMANCE_LOG"]) / f"{self.data.index}.jsonl"
        self._log.write_text("")
        return None

    @tool
    def add(self, n: int) -> str:
        """Add a number.

        Args:
            n: What to add; at most 100.
        """
        self._wrote("add", {"n": n})
        if n > 100:
            raise ToolError("at most 100 at a time")
        self.total += n
        return f"now {self.total}"

    @tool
    def commit(self) -> str:
        """Say that you are finished; ends the episode."""
        self._wrote("commit", {})
        self.done = True
        return "committed"

    @tool
    def crash(self) -> str:
        """Break the environment."""
        raise RuntimeError("the simulation blew up")

    def end_turn(self, response: str) -> str | None:
        return None

    def score(self) -> dict[str, float]:
        return {"near": max(0.0, 1 - abs(TARGET - self.total) / TARGET)}

    def _wrote(self, name: str, arguments: dict[str, Any]) -> None:
        with self._log.open("a") as file:
            file.write(json.dumps([name, arguments]) + "\n")


class Twice(Adder):
    """Asks once more after the first answer."""

    def reset(self, seed: int | None) -> str | None:
        self._answers = 0
        return super().reset(seed)

    def end_turn(self, response: str) -> str | None:
        self._answers += 1
        return "Are you sure?" if self._answers == 1 else None


class AdderBundle(Bundle):
    """The same cases with one turn and with two."""

    name = "adder"
    splits = ("one", "two")

    def tasks(self, split: str) -> Sequence[TaskData]:
        return [
            TaskData(
                id=f"adder/{split}/{index}",
                name=f"case {index}",
                split=split,
                index=index,
                prompt=f"Case {index}: add up to ten.",
            )
            for index in range(CASES)
        ]

    def open(self, data: TaskData) -> Task:
        return Twice(data) if data.split == "two" else Adder(data)


bundle = AdderBundle()
