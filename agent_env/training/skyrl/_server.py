"""One env server as the rollouts of this process see it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from agent_env.client import AgentEnv, _http
from agent_env.client._dial import Address
from agent_env.client._http import NoSuchPath
from agent_env.client._preflight import Room
from agent_env.client._site import Site
from agent_env.client.session import Session
from agent_env.training.skyrl.settings import EnvSettings
from agent_env.types import ToolSpec


class Server:
    """Facts are asked for once; each rollout gets a connection that can be cut by itself."""

    def __init__(self, settings: EnvSettings) -> None:
        settings.check()
        self._policy = settings.policy()
        self._address = Address.of(settings.url, owner=settings.owner or None)
        self._env = AgentEnv(settings.url, owner=settings.owner or None)

    def tools(self, split: str) -> Sequence[ToolSpec]:
        """The split's tools. Raises TaskNotFound, ServerDown."""
        return self._env.tools(split)

    def session(self) -> tuple[Session, Site]:
        """A session, not open yet, and its site: closing that ends whatever the session is at."""
        site = Site(self._address)
        # It was asked for its tools before: one that refuses now is restarting.
        site.answered = True
        site.extended, site.journaled = self._env._site.extended, self._env._site.journaled
        return Session(site, self._policy), site

    def capacity(self) -> int | None:
        """How many sessions it has; None where it doesn't tell. Raises SessionError.

        Asks for its facts, too: a server that can't be reached is found out here.
        """
        self._env.splits  # noqa: B018 - known from then on
        try:
            return Room.read(_http.ask(self._address, "GET", "/capacity")).most
        except NoSuchPath:
            return None


@cache
def server_for(settings: EnvSettings) -> Server:
    """The process's own. Raises ValueError for settings that can't be."""
    return Server(settings)
