"""What each program may be told: one frozen model per program, free of torch.

`python -m agent_env.training.config PROGRAM` reads a config as JSON on stdin and says on stderr,
one line a fault, what is wrong with it: so a run is refused while it is planned, not on a box.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from agent_env.training.config.async_grpo import AsyncGrpoConfig
from agent_env.training.config.base import LoraConfig, ProgramConfig, UnslothConfig, VllmConfig
from agent_env.training.config.evaluate import EvaluateConfig
from agent_env.training.config.grpo import GrpoConfig, TrainingConfig
from agent_env.training.config.outage import OutageConfig
from agent_env.training.config.parsing import ConfigError, near, parse_config
from agent_env.training.config.sft import SftConfig
from agent_env.training.config.skyrl import SkyrlGrpoConfig
from agent_env.training.config.verl import VerlGrpoConfig

__all__ = [
    "CONFIGS",
    "EXIT_BAD_CONFIG",
    "AsyncGrpoConfig",
    "ConfigError",
    "EvaluateConfig",
    "GrpoConfig",
    "LoraConfig",
    "OutageConfig",
    "ProgramConfig",
    "SftConfig",
    "SkyrlGrpoConfig",
    "TrainingConfig",
    "UnslothConfig",
    "VerlGrpoConfig",
    "VllmConfig",
    "main",
    "parse_config",
]

EXIT_BAD_CONFIG = 2

CONFIGS: dict[str, type[ProgramConfig]] = {
    "sft": SftConfig,
    "grpo": GrpoConfig,
    "async_grpo": AsyncGrpoConfig,
    "verl_grpo": VerlGrpoConfig,
    "skyrl_grpo": SkyrlGrpoConfig,
    "evaluate": EvaluateConfig,
    "outage": OutageConfig,
}


def main(argv: Sequence[str]) -> int:
    """Check the config on stdin for the program that `argv` names."""
    try:
        _check(argv, sys.stdin.read())
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_BAD_CONFIG
    return 0


def _check(argv: Sequence[str], text: str) -> None:
    name = argv[0] if len(argv) == 1 else ""
    if name not in CONFIGS:
        known = ", ".join(CONFIGS)
        raise ConfigError([f"unknown program {name!r}{near(name, list(CONFIGS))}; known: {known}"])
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError([f"config: not JSON: {error}"]) from None
    parse_config(CONFIGS[name], values)
