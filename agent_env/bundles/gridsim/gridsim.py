"""The splits of gridsim, what they open, and the hash that freezes them."""

import hashlib
import json
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from agent_env.bundle import Bundle
from agent_env.bundles.gridsim.demonstrations import coarse_calls, fine_calls
from agent_env.bundles.gridsim.frozen import (
    COARSE_SPLITS,
    FINE_SPLITS,
    coarse_days,
    fine_days,
)
from agent_env.bundles.gridsim.parameters import parameters
from agent_env.bundles.gridsim.prompts import COARSE_PROMPT, fine_prompt
from agent_env.bundles.gridsim.tasks import CoarseTask, FineTask
from agent_env.task import Task
from agent_env.types import TaskData


class GridSim(Bundle):
    """The bundle; its reward is the score `value`."""

    name = "gridsim"
    splits = (*FINE_SPLITS, *COARSE_SPLITS)

    def tasks(self, split: str) -> Sequence[TaskData]:
        """The frozen days of a split. Raises KeyError for a split that doesn't exist."""
        if split not in self.splits:
            raise KeyError(split)
        return _tasks(split)

    def open(self, data: TaskData) -> Task:
        return CoarseTask(data) if data.split in COARSE_SPLITS else FineTask(data)

    def expert(
        self, data: TaskData, *, noise: float, rng: random.Random
    ) -> list[tuple[str, dict[str, Any]]]:
        """The two calls of the best schedule, each decision random with probability `noise`.

        Finds the day by split and index, so a task listed by a client will do.
        """
        if data.split in COARSE_SPLITS:
            return coarse_calls(coarse_days(data.split)[data.index], noise, rng)
        return fine_calls(fine_days(data.split)[data.index], noise, rng)

    def reward(self, scores: dict[str, float]) -> float | None:
        return scores.get("value")

    @property
    def content_hash(self) -> str:
        """SHA-256 of days, prompts, tools and parameters: equal hashes, comparable results."""
        table = json.dumps(parameters(), sort_keys=True)
        return hashlib.sha256(f"{super().content_hash}\n{table}".encode()).hexdigest()


@cache
def _tasks(split: str) -> tuple[TaskData, ...]:
    days = coarse_days(split) if split in COARSE_SPLITS else fine_days(split)
    prompt = COARSE_PROMPT if split in COARSE_SPLITS else fine_prompt()
    return tuple(
        TaskData(
            id=f"gridsim/{split}/{index}",
            name=f"{split} day {index}",
            split=split,
            index=index,
            prompt=prompt,
            data=day.model_dump(mode="json"),
        )
        for index, day in enumerate(days)
    )
