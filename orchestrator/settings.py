"""What the environment says. No other module of the orchestrator reads it.

A plain model rather than pydantic-settings: importing that alone costs 0.2 s, and there are five
variables.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from orchestrator.errors import GpurunError

CloudName = Literal["local", "aws"]
DEFAULT_HOME = "~/.local/state/gpurun"
CLOUDS: dict[str, CloudName] = {"local": "local", "aws": "aws"}


class CloudState(BaseModel):
    """The running local cloud, as its own state file tells it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    pid: int
    url: str
    driver: Literal["bwrap", "process"]
    """Whether its boxes run under bubblewrap or as plain processes."""
    started_at: AwareDatetime
    region: str


def _home() -> Path:
    return Path(os.environ.get("GPURUN_HOME") or DEFAULT_HOME).expanduser().absolute()


def _cloud() -> CloudName:
    wanted = os.environ.get("GPURUN_CLOUD") or "local"
    if wanted not in CLOUDS:
        raise GpurunError(
            f"GPURUN_CLOUD is {wanted!r}", hint="Set it to local or aws, or unset it."
        )
    return CLOUDS[wanted]


def _first_of(*names: str) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)


def variable(name: str) -> str | None:
    """A variable of this machine's environment that a runbook names."""
    return os.environ.get(name)


class Settings(BaseModel):
    """Settings of one command: what isn't given is read from the environment.

    Raises GpurunError when GPURUN_CLOUD is neither local nor aws.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    home: Path = Field(default_factory=_home)
    """Folder of caches and of the local cloud (GPURUN_HOME); may be lost without harm."""
    cloud: CloudName = Field(default_factory=_cloud)
    """The cloud without `--cloud` (GPURUN_CLOUD): real money is always asked for by name."""
    region: str | None = Field(
        default_factory=lambda: _first_of("AWS_REGION", "AWS_DEFAULT_REGION")
    )
    """Where to look for runs (AWS_REGION, AWS_DEFAULT_REGION); plans name their own."""
    owner: str = Field(
        default_factory=lambda: _first_of("GPURUN_OWNER", "USER", "LOGNAME") or "unknown"
    )
    """Value of the owner tag (GPURUN_OWNER, else the user's name)."""
    wheels: str | None = Field(default_factory=lambda: _first_of("GPURUN_WHEELS"))
    """GPURUN_WHEELS: wheel folders, one for each pins, that local boxes install from."""

    @property
    def cloud_folder(self) -> Path:
        """The local cloud's own folder."""
        return self.home / "cloud"

    def cloud_state(self) -> CloudState | None:
        """The local cloud's state; None when its file is missing or unreadable."""
        try:
            text = (self.cloud_folder / "state.json").read_text("utf-8")
            return CloudState.model_validate_json(text)
        except (OSError, ValidationError, UnicodeDecodeError):
            return None
