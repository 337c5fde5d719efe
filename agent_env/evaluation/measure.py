"""What is to be measured, settled before anything is written or played."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from agent_env.bundle import Bundle, load_bundle
from agent_env.client import AgentEnv
from agent_env.errors import AtCapacity, BundleError, RewardUndefined, TaskNotFound
from agent_env.evaluation.history import Move, tool_schema
from agent_env.evaluation.own_server import own_server
from agent_env.evaluation.play import play
from agent_env.evaluation.results import Header
from agent_env.evaluation.run import missing
from agent_env.nearest import nearest
from agent_env.types import TaskData, ToolSpec

PATIENCE_S = 60.0
"""For room on a server that somebody else uses too."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a person asked for."""

    target: str
    """A server's address, or a bundle that is served for as long as it takes."""
    split: str
    policy: str
    attempts: int = 1
    tasks: int | None = None
    """The first so many of the split; None is all of them."""
    concurrency: int = 8
    seed: int = 0
    reward: str | None = None
    max_calls: int = 64
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @property
    def remote(self) -> bool:
        """True for a server's address."""
        return "://" in self.target


def open_env(request: Request) -> AbstractContextManager[AgentEnv]:
    """The server that is asked for, started if it is a bundle.

    Raises BundleError, TaskNotFound for a split that the bundle doesn't have, ServerDown.
    """
    if request.remote:
        return _at_address(request)
    _check_split(request.split, load_bundle(request.target).splits)
    return own_server(
        request.target,
        max_sessions=request.concurrency,
        reward=request.reward,
        patience=PATIENCE_S,
    )


def splits_of(target: str) -> tuple[str, ...]:
    """The splits of a bundle, or of the server at an address.

    Raises BundleError, ServerDown.
    """
    if "://" not in target:
        return tuple(load_bundle(target).splits)
    with _at(target) as env:
        return env.splits


def _check_split(split: str, known: Sequence[str]) -> None:
    if split not in known:
        raise TaskNotFound(f"no split {split!r}; {nearest(split, known)}")


def _at_address(request: Request) -> AgentEnv:
    if request.reward is not None:
        raise BundleError("--reward is the server's to know: give it to agent-env serve")
    return _at(request.target)


def _at(address: str) -> AgentEnv:
    try:
        return AgentEnv(address, patience=PATIENCE_S)
    except ValueError as error:
        raise BundleError(str(error)) from error


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What will be played, and the header that says so."""

    header: Header
    tasks: tuple[TaskData, ...]
    tools: tuple[ToolSpec, ...]


def settle(request: Request, env: AgentEnv) -> Measurement:
    """Ask the server for tasks, tools, hashes and room.

    Raises TaskNotFound, AtCapacity, RewardUndefined, ServerDown, Unauthorized.
    """
    _check_split(request.split, env.splits)
    tools = tuple(env.tools(request.split))
    tasks = tuple(env.tasks(request.split))
    count = len(tasks) if request.tasks is None else request.tasks
    if count > len(tasks):
        raise TaskNotFound(f"--tasks {count}: the split {request.split} has {len(tasks)}")
    _check_room(request, env, count * request.attempts)
    if request.reward is not None:
        _check_reward(env, tasks, tools)
    owner = _owner(request, env)
    header = Header(
        env=owner,
        bundle_hash=env.content_hashes.get(owner),
        split=request.split,
        tasks=count,
        attempts=request.attempts,
        policy=request.policy,
        sampling=dict(request.sampling),
        seed=request.seed,
        reward=env.reward,
        max_calls=request.max_calls,
        tools=[tool_schema(spec) for spec in tools],
        versions={"gpurun": _version("gpurun"), "python": platform.python_version()},
    )
    return Measurement(header=header, tasks=tasks[:count], tools=tools)


def own_bundle(request: Request, header: Header) -> Bundle:
    """The bundle with its tasks' data, also for a server's address.

    Raises BundleError when it isn't installed here, or isn't the one that is served.
    """
    if not request.remote:
        return load_bundle(request.target)
    bundle = load_bundle(header.env)
    if bundle.content_hash != header.bundle_hash:
        raise BundleError(
            f"the bundle {header.env} here is not the one that {request.target} serves: its"
            " expert knows other tasks"
        )
    return bundle


def _check_room(request: Request, env: AgentEnv, attempts: int) -> None:
    try:
        env.check(sessions=min(request.concurrency, attempts))
    except AtCapacity as error:
        wanted = (
            f"--concurrency {request.concurrency} doesn't fit: give a smaller one or make room"
        )
        raise AtCapacity(f"{wanted}. {error}") from error


def _check_reward(env: AgentEnv, tasks: Sequence[TaskData], tools: tuple[ToolSpec, ...]) -> None:
    """An episode in which nothing is done says whether the score that is asked for exists."""
    (attempt,) = missing(tasks[:1], 1, 0, ())
    session = env.session()
    row = play(session, attempt, lambda _: Move(), tools=tools, max_calls=1)
    session.close()
    if row.reward is None:
        raise RewardUndefined(f"--reward: {row.error}")


def _owner(request: Request, env: AgentEnv) -> str:
    """The bundle of the split; a stock server tells none, so its address stands for it."""
    names = list(env.content_hashes)
    if len(names) > 1:
        return str(env.rows(request.split)[0]["environment"])
    return names[0] if names else request.target


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a box runs the bare source tree
        return "source"
