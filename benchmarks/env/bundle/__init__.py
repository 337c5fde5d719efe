"""The cheapest tasks there can be, so that what is measured is the server."""

from __future__ import annotations

from collections.abc import Sequence

from agent_env import Bundle, Task, TaskData, tool


class Tally(Task):
    """A number that grows."""

    quick = True

    def reset(self, seed: int | None) -> str | None:  # noqa: ARG002
        self.total = 0
        return None

    @tool
    def tick(self) -> str:
        """Add one: a plain step, without an argument to check."""
        self.total += 1
        return str(self.total)

    @tool
    def add(self, a: int, b: int) -> str:
        """Add two numbers: a typed tool.

        Args:
            a: the first number
            b: the second number
        """
        self.total += a + b
        return str(a + b)

    def score(self) -> dict[str, float]:
        return {"any": 1.0}


class Tallies(Bundle):
    """One task."""

    name = "tally"
    splits = ("train",)

    def tasks(self, split: str) -> Sequence[TaskData]:
        return [TaskData(id="tally", name="tally", split=split, index=0, prompt="Count.")]

    def open(self, data: TaskData) -> Task:
        return Tally(data)


bundle = Tallies()
