"""`AgentEnv(url)`: what a trainer needs of an env server: its dataset and its environments."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from agent_env.client import _discovery, _preflight
from agent_env.client._dial import Address
from agent_env.client._keeper import KeptServer
from agent_env.client._policy import Policy
from agent_env.client._rows import row, with_all_columns
from agent_env.client._site import Site
from agent_env.client._talk import T
from agent_env.client.async_session import AsyncSession
from agent_env.client.local import BundleRef
from agent_env.client.session import Session
from agent_env.errors import NotInstalled, ServerDown, TaskNotFound
from agent_env.types import TaskData, ToolSpec

Factory = Callable[[], Any]

_LOOK_AGAIN_S = 0.1


class AgentEnv:
    """A client of one env server; opening it calls nobody.

    Seconds: `patience` for room on a full server, `reset_timeout` and `step_timeout` for replies,
    `budget` for a whole call with all its waits (None: the sum of its parts). With
    `waits_for_server`, a server that refuses connections, as one restarting does, is waited for up
    to `max(patience, reset_timeout)`; without, rollouts are unscored at once. The first session
    raises in any case. `token` is the server's, else the one in AGENT_ENV_TOKEN. `owner` names the
    job: its next process ends the sessions that this one leaves behind. Raises ValueError for an
    address or an option that can't be.
    """

    def __init__(
        self,
        url: str,
        *,
        patience: float = 4.0,
        reset_timeout: float = 60.0,
        step_timeout: float = 60.0,
        budget: float | None = None,
        waits_for_server: bool = True,
        token: str | None = None,
        owner: str | None = None,
    ) -> None:
        self._policy = Policy(
            patience=patience,
            reset_timeout=reset_timeout,
            step_timeout=step_timeout,
            budget=budget,
            waits_for_server=waits_for_server,
        )
        self._site = Site(Address.of(url, token, owner))
        self._server: KeptServer | None = None
        self._given: set[str] = set()

    @property
    def url(self) -> str:
        """The server's address over HTTP."""
        return self._site.address.url

    @classmethod
    def local(
        cls,
        bundle: BundleRef | Sequence[BundleRef],
        *,
        port: int = 0,
        max_sessions: int = 64,
        reward: str | None = None,
        journal: Path | None = None,
        log: Path | None = None,
        **options: Any,
    ) -> AgentEnv:
        """Serve one bundle or several from a child process; it ends with this one, or at `close`.

        One that dies by itself is started again on its port and continues the episodes; whoever
        serves the same `journal` folder after it does, too. `options` are AgentEnv's own. Raises
        ServerDown when the server doesn't start, JournalError without a folder for a journal.
        """
        server = KeptServer(
            bundle,
            port=port,
            max_sessions=max_sessions,
            reward=reward,
            journal=journal,
            log=log,
        )
        return cls.of(server, **options)

    @classmethod
    def of(cls, server: KeptServer, **options: Any) -> AgentEnv:
        """The client of a server of one's own, which ends at `close`."""
        try:
            env = cls(server.url, **options)
        except BaseException:
            server.stop()
            raise
        env._server = env._site.kept = server
        return env

    @property
    def restarts(self) -> int:
        """How often its own server died and was started again; 0 for a server at an address."""
        return 0 if self._server is None else self._server.restarts

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, in the server's order."""
        return tuple(self._facts.owners)

    @property
    def content_hashes(self) -> Mapping[str, str]:
        """SHA-256 of each served bundle's tasks and tools; a stock server tells none."""
        return self._facts.hashes

    @property
    def reward(self) -> str | None:
        """What the server makes its rewards of: a score's id, "mean" or "function"; None for the
        bundle's own rule, and for a stock server, which tells none."""
        return self._facts.reward

    def tasks(self, split: str) -> list[TaskData]:
        """The tasks of a split, without their `data`. Raises TaskNotFound, ServerDown."""
        known = self._facts
        return self._answer(lambda: _discovery.tasks(self._site.address, known, split))

    def tools(self, split: str) -> list[ToolSpec]:
        """The tools of a split, `end_turn` among them. Raises TaskNotFound.

        A stock server tells them in an episode: this opens one, and closes it.
        """
        return self._facts.tools(split, self.session)

    def bundle_of(self, split: str) -> str:
        """The name of the bundle that has the split. Raises TaskNotFound."""
        self._facts.check_split(split)
        return self._facts.owners[split]

    def check(self, *, sessions: int) -> None:
        """Is there room for so many sessions at once? Ask before a model is loaded.

        Raises AtCapacity, which says what to do, and ServerDown, Unauthorized, ProtocolError. A
        stock server doesn't tell its capacity: there only the rest is checked.
        """
        self._answer(lambda: _preflight.check(self._site, sessions))

    def dataset(self, *splits: str) -> Any:
        """A `datasets.Dataset` for a trainer: prompt, task_id, split, index for each task.

        Where the server has several bundles there is also `environment`, the factory to use.
        Several splits make one dataset, with the columns of all. Raises NotInstalled without the
        package datasets, and what `tasks` raises.
        """
        datasets = _datasets()
        return datasets.Dataset.from_list(self.rows(*splits))

    def rows(self, *splits: str) -> list[dict[str, Any]]:
        """The dataset's rows as plain dicts, each with the same columns."""
        if not splits:
            raise TaskNotFound(f"name a split; there are: {', '.join(self.splits)}")
        rows = [row for split in splits for row in self._rows_of(split)]
        self._given.update(splits)
        return with_all_columns(rows)

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
        if not splits:
            raise TaskNotFound(f"name a split; there are: {', '.join(self.splits)}")
        tools = [self.tools(split) for split in splits]
        if any(other != tools[0] for other in tools):
            raise ValueError(f"the splits {', '.join(splits)} differ in their tools")
        adapter = import_module("agent_env.training.trl")
        owner = self._facts.owners[splits[0]]
        made: Factory = adapter.Factory(owner, tools[0], splits, self._site, self._policy)
        return made

    def session(self) -> Session:
        """A session by hand; its first reset opens it."""
        return Session(self._site, self._policy)

    def async_session(self) -> AsyncSession:
        """The same for a program with an event loop, which has to close it."""
        return AsyncSession(self._site, self._policy)

    def close(self) -> None:
        """Close every session this client's factories opened, and the server if it is ours.

        A session that is used after that, an old or a new one, raises SessionLost.
        """
        self._site.close()
        if self._server is not None:
            self._server.stop()

    def __enter__(self) -> AgentEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, ask: Callable[[], T]) -> T:
        """What the server says; one of our own that has just died is back in a moment."""
        deadline = time.monotonic() + self._policy.wait_s(ServerDown())
        while True:
            try:
                return ask()
            except ServerDown as down:
                if (why := self._site.dead) is not None:
                    raise ServerDown(why) from down
                if self._server is None or time.monotonic() >= deadline:
                    raise
            time.sleep(_LOOK_AGAIN_S)

    @cached_property
    def _facts(self) -> _discovery.Facts:
        found = self._answer(lambda: _discovery.facts(self._site.address))
        self._site.extended, self._site.journaled = found.extended, found.journaled
        return found

    @property
    def _owners(self) -> dict[str, list[str]]:
        owners: dict[str, list[str]] = {}
        for split, owner in self._facts.owners.items():
            owners.setdefault(owner, []).append(split)
        return owners

    def _rows_of(self, split: str) -> list[dict[str, Any]]:
        tasks = self.tasks(split)
        shared = {"environment": self._facts.owners[split]} if len(self._owners) > 1 else {}
        return [row(task) | shared for task in tasks]

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


def _datasets() -> Any:
    # It comes with a trainer, not with this package, and takes a second to import.
    try:
        return import_module("datasets")
    except ModuleNotFoundError as error:
        if error.name != "datasets":
            raise
        message = "a dataset needs the package datasets"
        raise NotInstalled(message, extra="train") from None
