"""SkyRL's GRPO on env servers: an environment, a generator, an entry point, a dataset.

A rollout that the infrastructure lost costs SkyRL neither the step, nor a session, nor its
siblings' baseline. The names below load SkyRL on first use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from agent_env.errors import NotInstalled

if TYPE_CHECKING:
    from agent_env.training.skyrl.dataset import skyrl_rows, write_dataset
    from agent_env.training.skyrl.env import AgentTextEnv
    from agent_env.training.skyrl.experiment import AgentEnvExp, main
    from agent_env.training.skyrl.generator import AgentEnvGenerator
    from agent_env.training.skyrl.preflight import check
    from agent_env.training.skyrl.settings import EnvSettings

__all__ = [
    "AgentEnvExp",
    "AgentEnvGenerator",
    "AgentTextEnv",
    "EnvSettings",
    "check",
    "main",
    "skyrl_rows",
    "write_dataset",
]

_HOMES = {
    "AgentEnvExp": "experiment",
    "AgentEnvGenerator": "generator",
    "AgentTextEnv": "env",
    "EnvSettings": "settings",
    "check": "preflight",
    "main": "experiment",
    "skyrl_rows": "dataset",
    "write_dataset": "dataset",
}
_STACK = frozenset({"skyrl", "skyrl_gym", "ray", "torch", "loguru", "omegaconf", "datasets"})


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_loaded(f"{__name__}.{_HOMES[name]}"), name)


def _loaded(module: str) -> Any:
    """Raises NotInstalled where SkyRL, or the Python it needs, isn't there."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _STACK:
            raise
        message = f"SkyRL isn't here ({error}): pip install -r templates/pins/skyrl.txt"
        raise NotInstalled(message) from None
    except Exception as error:
        if type(error).__name__ != "PydanticUserError" or "TypedDict" not in str(error):
            raise
        ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise NotInstalled(f"SkyRL 0.3 needs Python 3.12, this is {ours}") from None
