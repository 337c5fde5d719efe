"""Environments to train agents on: bundles of tasks, a server, a client that survives it.

The names below load what they need on first use: a client imports neither the server nor a
trainer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_env.bundle import Bundle
    from agent_env.client import AgentEnv
    from agent_env.server import build_app
    from agent_env.task import Task, tool
    from agent_env.types import TaskData

__all__ = ["AgentEnv", "Bundle", "Task", "TaskData", "build_app", "tool"]

_HOMES = {
    "AgentEnv": "agent_env.client",
    "Bundle": "agent_env.bundle",
    "Task": "agent_env.task",
    "TaskData": "agent_env.types",
    "build_app": "agent_env.server",
    "tool": "agent_env.task",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
