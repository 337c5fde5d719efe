"""A scripted policy that is random and yet repeatable: an expert who errs, hesitates and fumbles.

Its next call depends on everything that it was told, so a wrong observation leads it elsewhere.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

from agent_env.bundle import Bundle, load_bundle
from agent_env.types import TaskData

Call = tuple[str, dict[str, Any]]

NOISES = (0.0, 0.1, 0.5)
HESITATES, FUMBLES = 0.4, 0.15
LOOK: dict[str, Call] = {"gridsim": ("read_day", {}), "inbox": ("search", {})}
FUMBLE: dict[str, Call] = {
    "gridsim": ("commit_schedule", {"battery_kw": [1], "generator_kw": [2]}),
    "inbox": ("read", {"message_id": "m999"}),
}
"""What the server refuses; like a look it changes nothing."""


class Policy:
    """One attempt at a task. `next` takes the hash of what was seen so far."""

    def __init__(self, task: TaskData, attempt: int, seed: int) -> None:
        self._key = f"{seed} {task.id} {attempt}"
        bundle_name = task.id.partition("/")[0]
        rng = random.Random(self._key)
        own = task.model_copy(update={"split": task.split.rpartition("/")[2]})
        calls = _bundle(bundle_name).expert(own, noise=rng.choice(NOISES), rng=rng)
        self._calls: Iterator[Call] = iter(calls)
        self._look, self._fumble = LOOK[bundle_name], FUMBLE[bundle_name]

    def next(self, seen: str) -> Call | None:
        """The next call; None when it has nothing more to do, whether or not the episode ended."""
        chance = random.Random(f"{self._key} {seen}").random()
        if chance < HESITATES:
            return self._look
        if chance < HESITATES + FUMBLES:
            return self._fumble
        return next(self._calls, None)

    def thinks_s(self, seen: str, longest_s: float) -> float:
        """How long it takes to decide, in seconds: that is when the server is struck."""
        return random.Random(f"{self._key} {seen} thinks").uniform(0.2, 1.0) * longest_s


@cache
def _bundle(name: str) -> Bundle:
    return load_bundle(name)
