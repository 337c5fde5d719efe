"""verl's agent loop on an env server, and what a run is made of: dataset, loop file, settings.

Importing this package needs no verl; `AgentEnvLoop`, which verl builds from the loop file, does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agent_env.errors import TooManyUnscored
from agent_env.training.ray_rollout import RolloutLost
from agent_env.training.verl.dataset import AGENT_NAME, rows, write_dataset
from agent_env.training.verl.errors import PromptTooLong
from agent_env.training.verl.loop_file import LoopSettings, write_loop_file
from agent_env.training.verl.overrides import VerlRun, overrides
from agent_env.training.verl.preflight import check, score_ids

if TYPE_CHECKING:
    from agent_env.training.verl.loop import AgentEnvLoop

__all__ = [
    "AGENT_NAME",
    "AgentEnvLoop",
    "LoopSettings",
    "PromptTooLong",
    "RolloutLost",
    "TooManyUnscored",
    "VerlRun",
    "check",
    "overrides",
    "rows",
    "score_ids",
    "write_dataset",
    "write_loop_file",
]


def __getattr__(name: str) -> Any:
    if name == "AgentEnvLoop":
        return import_module("agent_env.training.verl.loop").AgentEnvLoop
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
