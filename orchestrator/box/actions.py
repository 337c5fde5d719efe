"""What the agent can be told to do. `decide` returns these; `agent` carries them out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """A job moves to another state."""

    job: str
    state: str
    reason: str = ""


@dataclass(frozen=True)
class Install:
    """Make the environment of a set of pins (lane `install`)."""

    pins: str


@dataclass(frozen=True)
class Prepare:
    """Unpack a job's folder, restore what it committed, fetch its inputs (lane `fetch`)."""

    job: str


@dataclass(frozen=True)
class ReadSecrets:
    """Read the jobs' secrets from where they are kept (lane `secrets`)."""


@dataclass(frozen=True)
class Poll:
    """Ask S3 how the jobs of other boxes fare (lane `fetch`)."""


@dataclass(frozen=True)
class LookBack:
    """Read what an earlier box said of this one's jobs (lane `earlier`)."""


@dataclass(frozen=True)
class Listen:
    """Ask S3 whether the box has been told to stop (lane `listen`)."""


@dataclass(frozen=True)
class AskSpot:
    """Ask the metadata service whether the spot instance is to be taken away (lane `spot`)."""


@dataclass(frozen=True)
class Start:
    """Start a job's process, attempt + 1."""

    job: str


@dataclass(frozen=True)
class Stop:
    """Signal a job's process group: SIGTERM, or SIGKILL if `hard`.

    `frozen`: it may be started again; else it's over for good. `why` is what its reason will say.
    """

    job: str
    hard: bool
    why: str
    frozen: bool = False


@dataclass(frozen=True)
class KeepStacks:
    """Write down where the processes of a frozen job stand (lane `stacks`)."""

    job: str


@dataclass(frozen=True)
class Sync:
    """Commit a job's results (a lane of its own); `final`: nothing will be written any more.

    `quick`: only its log and metrics, while a round of all its results takes its time.
    """

    job: str
    final: bool
    quick: bool = False

    @property
    def lane(self) -> str:
        return f"{'quick' if self.quick else 'sync'} {self.job}"


@dataclass(frozen=True)
class Report:
    """Put the heartbeat and changed statuses (lane `report`); `log`: a new console, too."""

    phase: str
    log: bool


@dataclass(frozen=True)
class PowerOff:
    """End the box."""


Action = (
    Mark
    | Install
    | Prepare
    | ReadSecrets
    | LookBack
    | Poll
    | Listen
    | AskSpot
    | Start
    | Stop
    | KeepStacks
    | Sync
    | Report
    | PowerOff
)
