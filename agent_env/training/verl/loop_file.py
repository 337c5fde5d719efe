"""The loop file: what verl's workers are told of the env server, wherever they run.

verl reads it in every worker and builds the loop that it names, once for each rollout, with the
file's keys as arguments. Plain values only, and no secret: a token travels in AGENT_ENV_TOKEN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from agent_env.training.verl.dataset import AGENT_NAME

TARGET = "agent_env.training.verl.loop.AgentEnvLoop"


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """What a rollout keeps to. Seconds, unless said otherwise."""

    url: str
    """The env server, under an address that every node reaches."""
    sessions: int
    """Rollouts at once on all workers together: the server's capacity for this run."""
    scores: tuple[str, ...] = ()
    """Ids of the scores that are told beside the reward; the same in every rollout."""
    rollout_s: float = 600.0
    """What one rollout may take, generation and waits included; then it is lost."""
    patience: float = 15.0
    """For room on a full server: more than the ten seconds for which a server keeps the place of
    a rollout that broke off, whose seat here the next one has at once."""
    reset_timeout: float = 60.0
    step_timeout: float = 60.0
    text_ends_turn: bool = True
    """Whether a reply without a tool call is the answer to the task's turn."""
    unscored_limit: float = 0.5
    """Share of unscored rollouts, from 0 to 1, above which a worker ends the run."""
    unscored_rollouts: int = 32
    """Over how many of a worker's last rollouts that share is taken."""
    record: str | None = None
    """A file on each node to which every rollout adds a line, the lost ones too."""

    def __post_init__(self) -> None:
        if self.sessions < 1:
            raise ValueError(f"sessions: at least 1, not {self.sessions}")
        if not self.rollout_s > 0:
            raise ValueError(f"rollout_s: more than 0 s, not {self.rollout_s}")
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise ValueError(f"url: http:// or https://, not {self.url!r}")
        object.__setattr__(self, "scores", tuple(self.scores))

    def share(self, workers: int) -> int:
        """The rollouts at once of one of so many workers, which don't know of each other."""
        return max(1, self.sessions // workers)


def write_loop_file(path: Path, settings: LoopSettings) -> Path:
    """Write what `actor_rollout_ref.rollout.agent.agent_loop_config_path` names."""
    values: Mapping[str, Any] = asdict(settings) | {"scores": list(settings.scores)}
    entry = {"name": AGENT_NAME, "_target_": TARGET, **values}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump([entry], sort_keys=False), "utf-8")
    return path


def settings_of(values: Mapping[str, Any]) -> LoopSettings:
    """The settings among a loop's arguments. Raises ValueError, TypeError."""
    return LoopSettings(**{**values, "scores": tuple(map(str, values.get("scores", ())))})
