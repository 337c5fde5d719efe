"""One split for each fault that a bundle can have and still be played."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Sequence
from typing import Any

from agent_env import Bundle, Task, TaskData, tool
from agent_env.errors import ToolError
from agent_env.types import ToolSpec

WORDS = {"amber", "birch", "cedar", "dahlia", "elder", "fern", "ginger", "hazel"}
COUNTER = itertools.count()


class Fine(Task):
    """Say the word."""

    def reset(self, seed: int | None) -> str | None:
        self.said, self.done = "", False
        return None

    @tool
    def say(self, word: str) -> str:
        """Say a word.

        Args:
            word: What to say.
        """
        if len(word) > 20:
            raise ToolError("that is no word")
        self.said, self.done = word, True
        return "Heard."

    def score(self) -> dict[str, float]:
        return {"right": float(self.said == "fern")}


class HashSeed(Fine):
    def end_turn(self, response: str) -> str | None:
        self.done = True
        return None

    def reset(self, seed: int | None) -> str | None:
        super().reset(seed)
        return " ".join(WORDS)


class Random(Fine):
    def reset(self, seed: int | None) -> str | None:
        super().reset(seed)
        return str(random.random())


class Clock(Fine):
    def reset(self, seed: int | None) -> str | None:
        super().reset(seed)
        return str(time.monotonic_ns())


class Shared(Fine):
    def reset(self, seed: int | None) -> str | None:
        super().reset(seed)
        return str(next(COUNTER))


class Forgetful(Fine):
    """Its reset forgets what it heard only in part."""

    heard = 0

    def end_turn(self, response: str) -> str | None:
        self.heard += 1
        return "More?" if self.heard < 3 else None


class NotReplayable(Fine):
    replayable = False


class BadSnapshot(Fine):
    def snapshot(self) -> Any:
        return {"said": self.said}

    def restore(self, state: Any) -> None:
        self.reset(None)
        self.said = "lost"


class GoodSnapshot(Fine):
    replayable = False

    def snapshot(self) -> Any:
        return {"said": self.said, "done": self.done}

    def restore(self, state: Any) -> None:
        self.said, self.done = state["said"], state["done"]


class Breaks(Fine):
    @tool
    def say(self, word: str) -> str:
        """Say a word.

        Args:
            word: What to say.
        """
        raise RuntimeError("boom")


class NeverEnds(Fine):
    def end_turn(self, response: str) -> str | None:
        return "Go on."


class ScoreRange(Fine):
    def score(self) -> dict[str, float]:
        return {"right": 1.5}


class NotANumber(Fine):
    def score(self) -> dict[str, float]:
        return {"right": float("nan")}


class TwoScores(Fine):
    def score(self) -> dict[str, float]:
        return {"right": 1.0, "fast": 0.5}


class Idle(Fine):
    def score(self) -> dict[str, float]:
        return {"right": 1.0}


class Slow(Fine):
    quick = True

    def end_turn(self, response: str) -> str | None:
        time.sleep(0.015)
        return None


class Loud(Fine):
    """No fault: what it prints must not be taken for what the check says."""

    def reset(self, seed: int | None) -> str | None:
        print("hello", end="", flush=True)
        os.write(1, b"hello")
        return super().reset(seed)


class OtherTools(Fine):
    @tool
    def shout(self) -> str:
        """Shout."""
        return "Hey!"


CLASSES: dict[str, type[Task]] = {
    "fine": Fine,
    "hash-seed": HashSeed,
    "random": Random,
    "clock": Clock,
    "shared": Shared,
    "forgetful": Forgetful,
    "not-replayable": NotReplayable,
    "bad-snapshot": BadSnapshot,
    "good-snapshot": GoodSnapshot,
    "breaks": Breaks,
    "never-ends": NeverEnds,
    "score-range": ScoreRange,
    "not-a-number": NotANumber,
    "two-scores": TwoScores,
    "reward-range": Fine,
    "idle": Idle,
    "slow": Slow,
    "loud": Loud,
    "other-tools": Fine,
    "tasks-vary": Fine,
    "tasks-change": Fine,
    "place": Fine,
    "id-twice": Fine,
    "empty-prompt": Fine,
    "expert-wrong": Fine,
    "expert-refused": Fine,
    "expert-raises": Fine,
    "no-docs": Fine,
    "no-types": Fine,
}
TASKS = 3


class Faulty(Bundle):
    name = "faulty"
    splits = tuple(CLASSES)

    def tasks(self, split: str) -> Sequence[TaskData]:
        return [self._task(split, index) for index in range(TASKS)]

    def _task(self, split: str, index: int) -> TaskData:
        prompt = f"Say fern, {index}."
        if split == "tasks-vary":
            prompt = f"Say {' or '.join(WORDS)}."
        elif split == "tasks-change":
            prompt = f"Say fern, {next(COUNTER)}."
        elif split == "empty-prompt" and index == 1:
            prompt = " "
        return TaskData(
            id="same" if split == "id-twice" else f"{split}/{index}",
            name="say",
            split=split,
            index=0 if split == "place" else index,
            prompt=prompt,
        )

    def open(self, data: TaskData) -> Task:
        if data.split == "other-tools" and data.index == 2:
            return OtherTools(data)
        return CLASSES[data.split](data)

    def tools(self, split: str) -> list[ToolSpec]:
        specs = Fine.tools()
        if split == "no-docs":
            schema = {"type": "object", "properties": {"word": {"type": "string"}}}
            return [specs[0].model_copy(update={"description": " ", "input_schema": schema})]
        if split == "no-types":
            schema = {"type": "object", "properties": {"word": {"description": "What to say."}}}
            return [specs[0].model_copy(update={"input_schema": schema})]
        return specs

    def expert(
        self, data: TaskData, *, noise: float, rng: random.Random
    ) -> list[tuple[str, dict[str, Any]]]:
        if data.split == "expert-raises":
            raise LookupError("no idea")
        if data.split == "expert-wrong":
            return [("say", {"word": "moss"})]
        if data.split == "expert-refused":
            return [("say", {"word": "fern" * 9}), ("say", {"word": "fern"})]
        return [("say", {"word": "fern"})]

    def reward(self, scores: dict[str, float]) -> float | None:
        if "fast" in scores:
            return super().reward(scores)
        return scores["right"]


bundle = Faulty()
