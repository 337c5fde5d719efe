"""What a server says of itself: its splits, and the tools and tasks of each.

A server of ours answers all of it at `/tools`. A stock OpenEnv server has the Task API for the
splits and tasks, and tells an episode's tools to who has opened one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from agent_env.client import _http
from agent_env.client._dial import Address
from agent_env.client._http import NoSuchPath
from agent_env.client.session import Session
from agent_env.errors import InvalidAction, ProtocolError, TaskNotFound
from agent_env.nearest import nearest
from agent_env.types import TaskData, ToolSpec

PROTOCOL = 1


@dataclass
class Facts:
    """What clients need of a server before they open a session."""

    env_name: str
    owners: dict[str, str]
    """The bundle of each split, in the server's order."""
    hashes: dict[str, str]
    extended: bool
    journaled: bool
    reward: str | None = None
    """A score's id, "mean", "function"; None for the bundles' own, or where it isn't told."""
    _tools: dict[str, list[ToolSpec]] = field(default_factory=dict)

    def check_split(self, split: str) -> None:
        """Raises TaskNotFound."""
        if split not in self.owners:
            raise TaskNotFound(f"no split {split!r}; {nearest(split, self.owners)}")

    def tools(self, split: str, open_session: Callable[[], Session]) -> list[ToolSpec]:
        """The split's tools; those of a stock server are asked for in an episode of it."""
        self.check_split(split)
        if split not in self._tools:
            self._tools[split] = _tools_in_an_episode(split, open_session)
        return self._tools[split]


def facts(address: Address) -> Facts:
    """Raises ServerDown, Unauthorized, and ProtocolError for what isn't an env server."""
    try:
        told = _http.ask(address, "GET", "/tools")
    except NoSuchPath:
        return _stock_facts(address)
    try:
        splits = told["splits"]
        return Facts(
            env_name=str(told["env_name"]),
            owners={name: str(split["bundle"]) for name, split in splits.items()},
            hashes=dict(told["bundles"]),
            extended=told.get("protocol") == PROTOCOL,
            journaled=told.get("journal") is not False,
            reward=None if told.get("reward") is None else str(told["reward"]),
            _tools={name: _specs(split["tools"]) for name, split in splits.items()},
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ProtocolError(f"{address.url}/tools answers nothing of ours: {error!r}") from error


def tasks(address: Address, known: Facts, split: str) -> list[TaskData]:
    """The split's tasks. Raises TaskNotFound."""
    answer = _http.ask(address, "POST", f"/{known.env_name}/tasks", {"split": split})
    try:
        listed = list(answer["tasks"])
    except (KeyError, TypeError) as error:
        raise ProtocolError(f"{address.url}: the task list has no tasks: {error!r}") from error
    return [_task(split, position, task) for position, task in enumerate(listed)]


def _stock_facts(address: Address) -> Facts:
    try:
        (name,) = _http.ask(address, "GET", "/list_environments")
        splits = [split["name"] for split in _http.ask(address, "GET", f"/{name}/splits")]
    except NoSuchPath as error:
        raise ProtocolError(
            f"{address.url} has no Task API, so it can't say which tasks there are ({error});"
            " give its environment list_splits and list_tasks, or play it by hand with session()"
        ) from error
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"{address.url}: the Task API answers nonsense: {error!r}") from error
    return Facts(str(name), dict.fromkeys(splits, str(name)), {}, extended=False, journaled=False)


def _tools_in_an_episode(split: str, open_session: Callable[[], Session]) -> list[ToolSpec]:
    with closing(open_session()) as session:
        session.reset(split=split, index=0)
        try:
            return _specs(session.list_tools())
        except (InvalidAction, KeyError, TypeError) as error:
            raise ProtocolError(
                f"the environment of {split!r} lists no tools ({error}); it must take the steps"
                " list_tools and call_tool"
            ) from error


def _specs(listed: list[dict[str, Any]]) -> list[ToolSpec]:
    fields = ToolSpec.model_fields
    kept = [{name: tool[name] for name in fields if name in tool} for tool in listed]
    return TypeAdapter(list[ToolSpec]).validate_python(kept)


def _task(split: str, position: int, task: Any) -> TaskData:
    """A listed task; what an env says of it beyond our own fields goes into `data`."""
    if not isinstance(task, dict) or not isinstance(task.get("prompt"), str):
        raise ProtocolError(
            f"task {position} of {split!r} has no text in `prompt`, so there is nothing to ask a"
            " model; list it with one"
        )
    own = {name: value for name, value in task.items() if name in TaskData.model_fields}
    index = own.get("index", position)
    defaults = {"id": f"{split}-{index}", "name": str(own.get("id", f"{split}-{index}"))}
    rest = {name: value for name, value in task.items() if name not in own}
    fields = {**defaults, **own, "split": split, "index": index}
    fields["id"] = str(fields["id"])
    try:
        return TaskData.model_validate({**fields, "data": {**own.get("data", {}), **rest}})
    except (ValidationError, TypeError) as error:
        raise ProtocolError(f"task {position} of {split!r} can't be read: {error}") from error
