"""W&B and trackio: are they there, before a model is loaded that is to be reported on?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from agent_env.training.config import ConfigError, ProgramConfig

_SERVER = "https://api.wandb.ai"
_QUIET = {"offline", "disabled"}


def check_reporting(config: ProgramConfig) -> None:
    """Raises ConfigError for what `report_to` asks for and can't have."""
    if faults := list(_faults(config)):
        raise ConfigError(faults)


def _faults(config: ProgramConfig) -> Iterator[str]:
    for name in config.report_to:
        if find_spec(name) is None:
            yield (
                f"config.report_to: the package {name} isn't installed here: pip install {name}, "
                f"or on a box add it to the job's pins"
            )
        elif name == "wandb" and not _can_log_in():
            yield (
                "config.report_to: wandb has no token: give the job the secret WANDB_API_KEY, or "
                "set WANDB_MODE=offline"
            )


def _can_log_in() -> bool:
    told = os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_MODE") in _QUIET
    return bool(told) or _in_netrc()


def _in_netrc() -> bool:
    """Where `wandb login` puts a token; the file may have those of other machines only."""
    path = Path(os.environ.get("NETRC") or "~/.netrc").expanduser()
    server = urlsplit(os.environ.get("WANDB_BASE_URL") or _SERVER).hostname
    try:
        return server in path.read_text(errors="replace").split()
    except OSError:
        return False
