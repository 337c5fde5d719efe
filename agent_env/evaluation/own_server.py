"""A server for one eval, which is started again whenever a task takes it down.

Its sessions are journaled: whoever was playing goes on with the same episode, and the task that
can't be gone on with is lost alone. So each attempt costs it ten deaths at most, and they end.
"""

from __future__ import annotations

import math

from agent_env.client import AgentEnv
from agent_env.client._keeper import KeptServer


def own_server(bundle: str, *, max_sessions: int, reward: str | None, patience: float) -> AgentEnv:
    """Serve the bundle until the end of `with`. Raises ServerDown when it doesn't start."""
    server = KeptServer(bundle, max_sessions=max_sessions, reward=reward, most_deaths=math.inf)
    return AgentEnv.of(server, patience=patience)
