"""The environment a program trains on: a server that is already there, or one of its own."""

from __future__ import annotations

from typing import Any

from agent_env.client import AgentEnv
from agent_env.training.config import ProgramConfig


def open_env(config: ProgramConfig, *, sessions: int) -> AgentEnv:
    """The env server, to be closed after use; `sessions` is how many rollouts run at once."""
    if config.env_url:
        return AgentEnv(config.env_url)
    return AgentEnv.local(config.bundle, max_sessions=sessions)


def task_rows(env: AgentEnv, split: str, limit: int | None = None) -> Any:
    """The dataset of a split, or of its first `limit` tasks."""
    rows = env.dataset(split)
    return rows if limit is None else rows.select(range(min(limit, len(rows))))
