"""The splits of gridsim, what they open, and the hash that freezes them."""

import hashlib
import json
import random
from collections.abc import Sequence
from functools import cache

from agent_env.bundle import Bundle, Calls
from agent_env.bundles.gridsim.demonstrations import coarse_calls, fine_calls
from agent_env.bundles.gridsim.frozen import (
    COARSE_SPLITS,
    FINE_SPLITS,
    CoarseDay,
    FineDay,
    content,
    records,
)
from agent_env.bundles.gridsim.parameters import parameters
from agent_env.bundles.gridsim.prompts import COARSE_PROMPT, fine_prompt
from agent_env.bundles.gridsim.tasks import CoarseTask, FineTask
from agent_env.task import Task
from agent_env.types import TaskData, ToolSpec


class GridSim(Bundle):
    """The bundle; its reward is the score `value`."""

    name = "gridsim"
    rewarded = "value"
    splits = (*FINE_SPLITS, *COARSE_SPLITS)

    def tasks(self, split: str) -> Sequence[TaskData]:
        """The frozen days of a split. Raises KeyError for a split that doesn't exist."""
        if split not in self.splits:
            raise KeyError(split)
        return _tasks(split)

    def open(self, data: TaskData) -> Task:
        return _task_class(data.split)(data)

    def expert(self, data: TaskData, *, noise: float, rng: random.Random) -> Calls:
        """The two calls of the best schedule, each decision random with probability `noise`.

        Finds the day by split and index, so a task listed by a client will do.
        """
        record = records(data.split)[data.index]
        if data.split in COARSE_SPLITS:
            return coarse_calls(CoarseDay.model_validate(record), noise, rng)
        return fine_calls(FineDay.model_validate(record), noise, rng)

    @property
    def content_hash(self) -> str:
        """SHA-256 of days, prompts, tools and parameters: equal hashes, comparable results.

        Of the files' text, so that it costs no parsing.
        """
        digest = hashlib.sha256(json.dumps(parameters(), sort_keys=True).encode())
        for split in self.splits:
            digest.update(f"{split}\n{_prompt(split)}".encode() + content(split))
            for spec in self.tools(split):
                digest.update(spec.model_dump_json().encode())
        return digest.hexdigest()

    def tools(self, split: str) -> list[ToolSpec]:
        return _task_class(split).tools()


def _task_class(split: str) -> type[CoarseTask] | type[FineTask]:
    return CoarseTask if split in COARSE_SPLITS else FineTask


def _prompt(split: str) -> str:
    return COARSE_PROMPT if split in COARSE_SPLITS else fine_prompt()


@cache
def _tasks(split: str) -> tuple[TaskData, ...]:
    prompt = _prompt(split)
    return tuple(
        TaskData(
            id=f"gridsim/{split}/{index}",
            name=f"{split} day {index}",
            split=split,
            index=index,
            prompt=prompt,
            data=day,
        )
        for index, day in enumerate(records(split))
    )
