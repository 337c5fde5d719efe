"""`AgentEnv(url)`: what a trainer needs of an env server: its dataset and its environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
from pydantic import TypeAdapter

from agent_env.client._connection import is_loopback
from agent_env.client._openenv import Policy, Site
from agent_env.client.local import BundleRef, LocalServer
from agent_env.client.session import Session
from agent_env.errors import NotInstalled, ProtocolError, ServerDown, TaskNotFound
from agent_env.types import TaskData, ToolSpec

Factory = Callable[[], Any]

_HTTP_TIMEOUT_S = 30.0


class AgentEnv:
    """A client of one env server; opening it calls nobody.

    Seconds: `patience` for room on a full server, `reset_timeout` and `step_timeout` for replies.
    With `waits_for_server`, environments wait for a server that refuses connections, as one
    restarting does, up to `max(patience, reset_timeout)`; without, their rollouts are unscored at
    once. The first session raises in any case.
    """

    def __init__(
        self,
        url: str,
        *,
        patience: float = 4.0,
        reset_timeout: float = 60.0,
        step_timeout: float = 60.0,
        waits_for_server: bool = True,
    ) -> None:
        self.url = _http_url(url)
        self._policy = Policy(
            patience=patience,
            reset_timeout=reset_timeout,
            step_timeout=step_timeout,
            waits_for_server=waits_for_server,
        )
        self._site = Site(self.url)
        self._server: LocalServer | None = None
        self._given: set[str] = set()

    @classmethod
    def local(
        cls,
        bundle: BundleRef | Sequence[BundleRef],
        *,
        port: int = 0,
        max_sessions: int = 64,
        reward: str | None = None,
        log: Path | None = None,
        **options: Any,
    ) -> AgentEnv:
        """Serve one bundle or several from a child process; it ends with this one, or at `close`.

        `options` are AgentEnv's own. Raises ServerDown when the server doesn't start.
        """
        server = LocalServer(bundle, port=port, max_sessions=max_sessions, reward=reward, log=log)
        env = cls(server.url, **options)
        env._server = server
        return env

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, in the server's order."""
        return tuple(self._facts["splits"])

    @property
    def content_hashes(self) -> Mapping[str, str]:
        """SHA-256 of each served bundle's tasks and tools."""
        hashes: dict[str, str] = self._facts["bundles"]
        return hashes

    def tasks(self, split: str) -> list[TaskData]:
        """The tasks of a split, without their `data`. Raises TaskNotFound, ServerDown."""
        path = f"/{self._facts['env_name']}/tasks"
        return TypeAdapter(list[TaskData]).validate_python(
            self._http("POST", path, {"split": split})["tasks"]
        )

    def tools(self, split: str) -> list[ToolSpec]:
        """The tools of a split, `end_turn` among them. Raises TaskNotFound."""
        if split not in self._facts["splits"]:
            raise TaskNotFound(f"no split {split!r}; there are: {', '.join(self.splits)}")
        return TypeAdapter(list[ToolSpec]).validate_python(self._facts["splits"][split]["tools"])

    def dataset(self, split: str) -> Any:
        """A `datasets.Dataset` for a trainer: prompt, task_id, split, index for each task.

        Where the server has several bundles there is also `environment`, the factory to use.
        Raises NotInstalled without the package datasets, and what `tasks` raises.
        """
        datasets = _datasets()
        return datasets.Dataset.from_list(self.rows(split))

    def rows(self, split: str) -> list[dict[str, Any]]:
        """The dataset's rows as plain dicts, each with the same columns."""
        shared = {"environment": self._owner(split)} if len(self._owners) > 1 else {}
        rows = [_row(task) | shared for task in self.tasks(split)]
        self._given.add(split)
        return rows

    @property
    def factory(self) -> Any:
        """What `environment_factory` takes: makes environments for the rows given out so far.

        They have the tools of the splits whose `dataset` or `rows` were asked for, before that
        those of the bundle's first split, and take a row of any split with the same tools. A dict
        by bundle where the server has several. Raises ValueError when the splits asked for differ
        in their tools: then use `factory_for`.
        """
        made = {
            owner: self.factory_for(*self._alike(owner, splits))
            for owner, splits in self._owners.items()
        }
        return made if len(made) > 1 else next(iter(made.values()))

    def factory_for(self, *splits: str) -> Factory:
        """The factory of some splits of one bundle, which must share their tools.

        Raises TaskNotFound, and ValueError when they don't.
        """
        tools = [self.tools(split) for split in splits]
        if any(other != tools[0] for other in tools):
            raise ValueError(f"the splits {', '.join(splits)} differ in their tools")
        adapter = import_module("agent_env.training.trl")
        owner = self._owner(splits[0])
        made: Factory = adapter.Factory(owner, tools[0], splits, self._site, self._policy)
        return made

    def session(self) -> Session:
        """A session by hand; its first reset opens it."""
        return Session(self._site, self._policy)

    def close(self) -> None:
        """Close every session this client's factories opened, and the server if it is ours."""
        self._site.close()
        if self._server is not None:
            self._server.stop()

    def __enter__(self) -> AgentEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return self._http("GET", "/tools")

    @property
    def _owners(self) -> dict[str, list[str]]:
        owners: dict[str, list[str]] = {}
        for split in self.splits:
            owners.setdefault(self._owner(split), []).append(split)
        return owners

    def _owner(self, split: str) -> str:
        owner: str = self._facts["splits"][split]["bundle"]
        return owner

    def _alike(self, owner: str, splits: list[str]) -> list[str]:
        """Those with the tools of what was given out, which must agree; else of the first."""
        given = [split for split in splits if split in self._given] or splits[:1]
        tools = self.tools(given[0])
        if any(self.tools(split) != tools for split in given):
            raise ValueError(
                f"{owner}: rows of the splits {', '.join(given)} were given out, which differ in"
                " their tools; use factory_for(split), and a trainer for each"
            )
        return [split for split in splits if self.tools(split) == tools]

    def _http(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            with httpx.Client(
                timeout=_HTTP_TIMEOUT_S, trust_env=not is_loopback(self.url)
            ) as http:
                reply = http.request(method, self.url + path, json=body)
        except httpx.TransportError as error:
            raise ServerDown(f"{self.url} can't be reached: {error}") from error
        if reply.is_error and reply.status_code != 400:
            raise ProtocolError(f"{self.url}{path} answers HTTP {reply.status_code}")
        try:
            answer: dict[str, Any] = reply.json()
            refused = answer["detail"] if reply.is_error else None
        except (ValueError, KeyError, TypeError) as error:
            raise ProtocolError(f"{self.url}{path} answers no JSON of ours: {error}") from error
        if refused is not None:
            raise TaskNotFound(refused)
        return answer


def _datasets() -> Any:
    # It comes with a trainer, not with this package, and takes a second to import.
    try:
        return import_module("datasets")
    except ModuleNotFoundError as error:
        if error.name != "datasets":
            raise
        message = "a dataset needs the package datasets: pip install 'gpurun[train]'"
        raise NotInstalled(message) from None


def _http_url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    if scheme not in ("http", "https", "ws", "wss"):
        raise ValueError(f"an env server's address begins with http://, not {url!r}")
    return f"{scheme.replace('ws', 'http')}://{rest.rstrip('/').removesuffix('/ws')}"


def _row(task: TaskData) -> dict[str, Any]:
    system = [{"role": "system", "content": task.system_prompt}] if task.system_prompt else []
    prompt = [*system, {"role": "user", "content": task.prompt}]
    return {"prompt": prompt, "task_id": task.id, "split": task.split, "index": task.index}
