"""A server for one eval, which is started again when a task takes it down.

Its sessions are journaled: whoever was playing goes on with the same episode, and the task that
can't be gone on with is lost alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from agent_env.client import AgentEnv
from agent_env.client.local import LocalServer
from agent_env.errors import ServerDown

_LOOK_EVERY_S = 0.1


@contextmanager
def own_server(
    bundle: str, *, max_sessions: int, reward: str | None, patience: float
) -> Iterator[AgentEnv]:
    """Serve the bundle until the end of `with`. Raises ServerDown when it doesn't start."""
    with (
        TemporaryDirectory(prefix="agent-env-eval-") as folder,
        LocalServer(
            bundle, max_sessions=max_sessions, reward=reward, journal=Path(folder)
        ) as server,
        _kept_up(server),
        AgentEnv(server.url, patience=patience) as env,
    ):
        yield env


@contextmanager
def _kept_up(server: LocalServer) -> Iterator[None]:
    """Start it again whenever it has ended, until the end of `with`."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_EVERY_S):
            if not server.running:
                try:
                    server.restart()
                except ServerDown:  # it said why on stderr; the sessions find out by themselves
                    return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
