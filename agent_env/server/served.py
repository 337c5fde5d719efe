"""What a server serves: named splits, each of one bundle, checked before a client comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agent_env.bundle import Bundle, reward_by
from agent_env.errors import BundleError, TaskNotFound
from agent_env.nearest import nearest
from agent_env.types import END_TURN, TaskData, ToolSpec

Reward = str | Callable[[dict[str, float]], float | None] | None
"""A score's id, "mean" of all, a function of the scores by id, or None for the bundle's own."""

PROTOCOL = 1
"""The version of our extensions (docs/env-protocol.md)."""

END_TURN_SPEC = ToolSpec(
    name=END_TURN,
    description="End your turn with your answer.",
    input_schema={
        "type": "object",
        "properties": {"response": {"type": "string", "description": "Your answer."}},
    },
)


@dataclass(frozen=True)
class ServedSplit:
    """One split as clients name it; `tasks` are the bundle's own."""

    name: str
    owner: str
    bundle: Bundle
    tasks: tuple[TaskData, ...]
    tools: tuple[ToolSpec, ...]

    @cached_property
    def listed_tools(self) -> list[dict[str, Any]]:
        """The tools as JSON data, made once."""
        return [tool.model_dump() for tool in self.tools]

    def listed(self, task: TaskData) -> TaskData:
        """The task as a client may see it: under the served name, without its data."""
        return task.model_copy(update={"split": self.name, "data": {}})

    def task(self, index: int) -> TaskData:
        """Raises TaskNotFound."""
        if not 0 <= index < len(self.tasks):
            last = len(self.tasks) - 1
            raise TaskNotFound(f"the split {self.name!r} has tasks 0 to {last}, not {index}")
        return self.tasks[index]


@dataclass(frozen=True)
class Served:
    """All splits, in order; the first task of the first is what a bare reset opens."""

    name: str
    splits: dict[str, ServedSplit]
    hashes: dict[str, str]
    reward: Reward

    @property
    def reward_name(self) -> str | None:
        """What the reward is: a score's id, "mean", "function"; None for the bundle's own."""
        return "function" if callable(self.reward) else self.reward

    def split(self, name: str) -> ServedSplit:
        """Raises TaskNotFound with the nearest name."""
        if name not in self.splits:
            raise TaskNotFound(f"no split {name!r}; {nearest(name, self.splits)}")
        return self.splits[name]

    def reward_of(self, split: ServedSplit, scores: dict[str, float]) -> float | None:
        """Raises RewardUndefined for a score that the task didn't record, or what the function
        raises."""
        if callable(self.reward):
            return self.reward(scores)
        if isinstance(self.reward, str):
            return reward_by(self.reward, scores)
        return split.bundle.reward(scores)


def serve(bundles: Bundle | Sequence[Bundle] | Mapping[str, Bundle], reward: Reward) -> Served:
    """Lay out the splits.

    One bundle keeps the names of its splits. Several are told apart by `<name>/<split>`, where
    the name is the mapping's key or the bundle's own; a bundle of one split is just `<name>`.
    Raises BundleError for what can't be served.
    """
    named = _named(bundles)
    splits = [
        _checked(split_name(owner, split, bundle, alone=len(named) == 1), owner, bundle, split)
        for owner, bundle in named.items()
        for split in bundle.splits
    ]
    if not splits:
        raise BundleError("nothing to serve: no bundle has a split")
    return Served(
        name="+".join(named).replace(".", "_"),
        splits={split.name: split for split in splits},
        hashes={owner: bundle.content_hash for owner, bundle in named.items()},
        reward=reward,
    )


def _named(bundles: Bundle | Sequence[Bundle] | Mapping[str, Bundle]) -> dict[str, Bundle]:
    if isinstance(bundles, Bundle):
        return {bundles.name: bundles}
    if isinstance(bundles, Mapping):
        return dict(bundles)
    return by_name(bundles)


def by_name(bundles: Sequence[Bundle]) -> dict[str, Bundle]:
    """Each by its own name. Raises BundleError for one that is given twice, or two of one name."""
    named: dict[str, Bundle] = {}
    for bundle in bundles:
        if named.get(bundle.name) is bundle:
            raise BundleError(f"the bundle {bundle.name!r} is named twice: name each once")
        if bundle.name in named:
            raise BundleError(
                f"two bundles are called {bundle.name!r}: give one another `name`, or serve them"
                " from Python as a mapping with names"
            )
        named[bundle.name] = bundle
    return named


def split_name(owner: str, split: str, bundle: Bundle, *, alone: bool) -> str:
    """What clients call a split of that bundle, which is served `alone` or with others."""
    if alone:
        return split
    return owner if len(bundle.splits) == 1 else f"{owner}/{split}"


def _checked(name: str, owner: str, bundle: Bundle, split: str) -> ServedSplit:
    tasks = tuple(bundle.tasks(split))
    if not tasks:
        raise BundleError(f"the split {name!r} of {bundle.name} has no tasks")
    for position, task in enumerate(tasks):
        if task.index != position or task.split != split:
            where = f"{bundle.name}, split {split!r}, position {position}"
            raise BundleError(f"{where}: the task says split {task.split!r}, index {task.index}")
    return ServedSplit(name, owner, bundle, tasks, (*bundle.tools(split), END_TURN_SPEC))


def described(served: Served) -> dict[str, Any]:
    """What `GET /tools` answers: enough for a client to build its environment classes."""
    return {
        "env_name": served.name,
        "protocol": PROTOCOL,
        "reward": served.reward_name,
        "bundles": served.hashes,
        "splits": {
            name: {
                "bundle": split.owner,
                "num_tasks": len(split.tasks),
                "tools": split.listed_tools,
            }
            for name, split in served.splits.items()
        },
    }
