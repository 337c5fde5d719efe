"""The environment a program trains on: a server that is already there, or one of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agent_env.client import AgentEnv
from agent_env.training.config import ProgramConfig


@contextmanager
def open_env(config: ProgramConfig, *, sessions: int) -> Iterator[AgentEnv]:
    """The env server, for as long as the block; `sessions` is how many rollouts run at once."""
    if config.env_url:
        env = AgentEnv(config.env_url)
    else:
        env = AgentEnv.local(config.bundle, max_sessions=sessions)
    try:
        yield env
    finally:
        env.close()


def task_rows(env: AgentEnv, split: str, limit: int | None = None) -> Any:
    """The dataset of a split, or of its first `limit` tasks."""
    rows = env.dataset(split)
    return rows if limit is None else rows.select(range(min(limit, len(rows))))
