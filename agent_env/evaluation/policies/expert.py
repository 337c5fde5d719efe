"""The bundle's own expert, without noise: what the tasks allow."""

from __future__ import annotations

import random
from functools import lru_cache

from agent_env.bundle import Bundle
from agent_env.errors import PolicyError
from agent_env.evaluation.history import Call, History, Move


class Expert:
    """Makes the expert's calls in order, then answers with nothing until the episode ends."""

    def __init__(self, bundle: Bundle) -> None:
        """Raises PolicyError for a bundle whose class has no expert."""
        if type(bundle).expert is Bundle.expert:
            raise PolicyError(f"the bundle {bundle.name} has no expert; write Bundle.expert")
        self._bundle = bundle
        self._plan = lru_cache(maxsize=4096)(self._ask)

    def __call__(self, history: History) -> Move:
        plan = self._plan(history.task.split, history.task.index, history.seed)
        if history.calls >= len(plan):
            return Move()
        return Move(calls=(plan[history.calls],))

    def _ask(self, split: str, index: int, seed: int) -> list[Call]:
        task = self._bundle.tasks(self._own(split))[index]
        calls = self._bundle.expert(task, noise=0.0, rng=random.Random(seed))  # noqa: S311
        return [Call(name=name, arguments=arguments) for name, arguments in calls]

    def _own(self, split: str) -> str:
        """The bundle's name of a split: a server of several bundles puts its own name before."""
        if split in self._bundle.splits:
            return split
        name = split.partition("/")[2]
        if name in self._bundle.splits:
            return name
        if len(self._bundle.splits) == 1:
            return self._bundle.splits[0]
        raise PolicyError(f"the bundle {self._bundle.name} has no split {split!r}")
