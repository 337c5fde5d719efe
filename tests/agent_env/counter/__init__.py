"""A bundle small enough to see through: add up to a target, in one or two turns.

Its tools can also do what real ones do on a bad day: be slow, refuse, break.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from agent_env import Bundle, Task, TaskData, tool
from agent_env.errors import ToolError


class Counter(Task):
    """Add numbers until the target is met; the closer, the better."""

    def reset(self, seed: int | None) -> str | None:
        self.total = 0
        self.seed = seed
        # A seed that the server derived is a long number, which no prompt needs.
        return f" Seed {seed}." if seed is not None and seed < 1000 else None

    @tool
    def add(self, n: int, note: str = "") -> str:
        """Add a number to the counter.

        Args:
            n: What to add.
            note: Why, in a word.
        """
        if n > 1000:
            raise ToolError("at most 1000 at a time")
        self.total += n
        return f"{self.total} {note}".strip()

    @tool
    def commit(self) -> str:
        """Say that you are finished; ends the episode."""
        self.done = True
        return "committed"

    @tool
    def wait(self, seconds: float) -> str:
        """Do nothing for a while.

        Args:
            seconds: How long.
        """
        threading.Event().wait(seconds)
        return "waited"

    @tool
    def crash(self) -> str:
        """Break the environment."""
        raise RuntimeError("the simulation blew up")

    def end_turn(self, response: str) -> str | None:
        self.answer = response
        return None

    def score(self) -> dict[str, float]:
        target = self.data.data["target"]
        return {"near": max(0.0, 1 - abs(target - self.total) / target)}


class TwoTurns(Counter):
    """Asks once more after the first answer; has a tool of its own."""

    answers: int = 0

    @tool
    def add_word(self, word: str, times: int | None = None) -> str:
        """Add a number given as a word.

        Args:
            word: one, two or three.
            times: How often; once when left out.
        """
        self.total += {"one": 1, "two": 2, "three": 3}[word] * (times or 1)
        return str(self.total)

    def end_turn(self, response: str) -> str | None:
        self.answers += 1
        return "Are you sure?" if self.answers == 1 else None


class CounterBundle(Bundle):
    """Two splits with the same tools, one with more."""

    name = "counter"
    splits = ("train", "eval", "turns")

    def tasks(self, split: str) -> Sequence[TaskData]:
        return [
            TaskData(
                id=f"{split}-{index}",
                name=f"count to {10 * (index + 1)}",
                split=split,
                index=index,
                prompt=f"Count to {10 * (index + 1)}.",
                system_prompt="You count.",
                data={"target": 10 * (index + 1)},
            )
            for index in range(4)
        ]

    def open(self, data: TaskData) -> Task:
        return TwoTurns(data) if data.split == "turns" else Counter(data)


bundle = CounterBundle()
