"""OpenEnv's own server over a bundle's tasks: `python -m agent_env.server.stock BUNDLE`.

What ours is compared with. Frames, sessions and sockets are OpenEnv's, so a session dies with its
socket and nothing outlives the process; only the tasks, and how the process starts, are as ours.
Needs the package openenv.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_types import (
    CallToolAction,
    CallToolObservation,
    ListToolsAction,
    ListToolsObservation,
)
from openenv.core.env_server.types import Observation, State

from agent_env.bundle import load_bundle
from agent_env.errors import AgentEnvError
from agent_env.server.episode import Episode, choose
from agent_env.server.options import run_main, tell
from agent_env.server.process import run
from agent_env.server.protocol import Reset, Step
from agent_env.server.served import Served, serve


class BundleEnvironment(Environment):  # type: ignore[misc] # openenv isn't where types are checked
    """A bundle's tasks as an environment that OpenEnv makes for each of its sessions."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, served: Served) -> None:
        super().__init__()
        self._served = served
        self._episode: Episode | None = None
        self._state = State()

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str | None = None,
        index: int | None = None,
    ) -> Observation:
        """Begin the episode of that task."""
        chosen = choose(self._served, Reset(split=split, index=index, seed=seed))
        self._episode = Episode(self._served, chosen)
        self._state = State(episode_id=episode_id, step_count=0)
        began = self._episode.reset()
        return Observation(done=began.done, reward=began.reward, metadata=began.metadata)

    def step(self, action: Any, timeout_s: float | None = None, **_: Any) -> Observation:  # noqa: ARG002
        """List the tools, or call one. Raises RuntimeError before the first reset."""
        if self._episode is None:
            raise RuntimeError("this environment was never reset")
        lists = isinstance(action, ListToolsAction)
        step = Step(None, {}) if lists else Step(action.tool_name, action.arguments)
        self._state.step_count += 1
        went = self._episode.step(step)
        kind = ListToolsObservation if lists else CallToolObservation
        return kind(done=went.done, reward=went.reward, metadata=went.metadata, **went.fields)

    @property
    def state(self) -> State:
        """Where the episode stands."""
        return self._state

    def list_splits(self) -> list[str]:
        """The names of the splits."""
        return list(self._served.splits)

    def num_tasks(self, split: str) -> int:
        """How many tasks a split has."""
        return len(self._served.split(split).tasks)

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """A split's tasks as a client may see them."""
        tasks = self._served.split(split)
        return [tasks.listed(task).model_dump(exclude={"data"}) for task in tasks.tasks]


class _Undrained:
    """OpenEnv cuts its sessions off when it is told to stop."""

    async def drain(self, _grace_s: float) -> None:
        return


def main() -> None:
    """Parse, load, serve."""
    run_main("agent_env.server.stock", _start)


def _start(options: argparse.Namespace) -> None:
    for name in ("journal", "workers", "token_env"):
        if getattr(options, name) is not None:
            raise AgentEnvError(f"OpenEnv's own server has no --{name.replace('_', '-')}")
    served = serve([load_bundle(ref) for ref in options.bundle], options.reward)
    app = create_app(
        partial(BundleEnvironment, served),
        CallToolAction,
        CallToolObservation,
        env_name=served.name,
        max_concurrent_envs=options.max_sessions,
    )
    app.state.sessions = _Undrained()
    run(
        app,
        host=options.host,
        port=options.port,
        announce=lambda port: tell(options.ready_fd, {"port": port}),
        with_parent=options.with_parent,
        parent_pid=options.parent_pid,
    )


if __name__ == "__main__":
    main()
