"""How a generator finds the environment that SkyRL makes out of its sight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_env.training.skyrl.env import AgentTextEnv

SEAT = "agent_env_seat"
"""The key in a rollout's extras; never in a dataset."""


@dataclass
class Seat:
    """One rollout's place: its environment, once there is one."""

    check: Callable[[list[Any]], None]
    """Raises JobFailed for a prompt that is too long to begin with."""
    env: AgentTextEnv | None = None
