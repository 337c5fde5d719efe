"""starter: find a number by asking whether it is higher or lower.

Serve it with `agent-env serve` and this folder; `agent-env check` says what is wrong with it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from agent_env import Bundle, Task, TaskData, tool
from agent_env.errors import ToolError

from .rules import ENOUGH, HIGHEST, LOWEST, Game, middles

SPLITS = {"train": 64, "eval": 16}


class StarterTask(Task):
    """One number. The rules know no model; what is said to one stands here."""

    def reset(self, seed: int | None) -> str | None:
        """Start over. Text returned here would be added to the prompt."""
        self.game, self.done = Game(self.data.data["number"]), False
        return None

    @tool
    def ask(self, number: int) -> str:
        """Ask about a number: the answer is higher, lower or right.

        Args:
            number: The number that you think of.
        """
        if not LOWEST <= number <= HIGHEST:
            # Read by the model; the episode goes on.
            raise ToolError(f"the number is from {LOWEST} to {HIGHEST}")
        answer = self.game.ask(number)
        self.done = self.game.found
        return answer

    def score(self) -> dict[str, float]:
        """Found or not, and how few questions it took; nothing done is worth 0."""
        if not self.game.found:
            return {"found": 0.0, "economy": 0.0}
        return {"found": 1.0, "economy": min(1.0, ENOUGH / self.game.asked)}


class Starter(Bundle):
    """Numbers from 1 to 100, drawn from the split's name and the index."""

    name = "starter"
    splits = tuple(SPLITS)
    rewarded = "mean"

    def tasks(self, split: str) -> Sequence[TaskData]:
        """The same tasks in every process. Raises KeyError."""
        return [
            TaskData(
                id=f"{self.name}/{split}/{index}",
                name=f"number {index}",
                split=split,
                index=index,
                prompt=f"I think of a number from {LOWEST} to {HIGHEST}. Find it.",
                data={"number": _number(split, index)},  # stays on the server
            )
            for index in range(SPLITS[split])
        ]

    def open(self, data: TaskData) -> Task:
        return StarterTask(data)

    def expert(
        self, data: TaskData, *, noise: float, rng: random.Random
    ) -> list[tuple[str, dict[str, Any]]]:
        """Halves what is left; with probability `noise` asks about any number instead."""
        asked = middles(_number(data.split, data.index))
        spoiled = [rng.randint(LOWEST, HIGHEST) if rng.random() < noise else n for n in asked]
        return [("ask", {"number": number}) for number in spoiled]


def _number(split: str, index: int) -> int:
    return random.Random(f"{split}/{index}").randint(LOWEST, HIGHEST)


bundle = Starter()
