"""What the environment says. No other module of the orchestrator reads it.

A plain model rather than pydantic-settings: importing that alone costs 0.2 s, and there are five
variables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

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


class Settings(BaseModel):
    """Settings of one command."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    home: Path
    """Folder of caches and of the local cloud (GPURUN_HOME); may be lost without harm."""
    cloud: CloudName = "local"
    """The cloud without `--cloud` (GPURUN_CLOUD): real money is always asked for by name."""
    region: str | None = None
    """AWS_REGION or AWS_DEFAULT_REGION: where to look for runs; plans name their own."""
    owner: str = "unknown"
    """Value of the owner tag (GPURUN_OWNER, else the user's name)."""
    wheels: Path | None = None
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


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of this process, or of the given environment.

    Raises GpurunError when GPURUN_CLOUD is neither local nor aws.
    """
    env = os.environ if environ is None else environ
    wanted = env.get("GPURUN_CLOUD") or "local"
    if wanted not in CLOUDS:
        raise GpurunError(
            f"GPURUN_CLOUD is {wanted!r}", hint="Set it to local or aws, or unset it."
        )
    wheels = env.get("GPURUN_WHEELS")
    return Settings(
        home=Path(env.get("GPURUN_HOME") or DEFAULT_HOME).expanduser().absolute(),
        cloud=CLOUDS[wanted],
        region=env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or None,
        owner=env.get("GPURUN_OWNER") or env.get("USER") or env.get("LOGNAME") or "unknown",
        wheels=Path(wheels).absolute() if wheels else None,
    )
