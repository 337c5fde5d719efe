"""What the agent knows about its box and jobs: `decide` reads it, `agent` and `fold` fill it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from orchestrator.box.deadline import Deadlines
from orchestrator.box.spec import BoxSpec, JobSpec

WAITING, INSTALLING, RUNNING, SYNCING = "waiting", "installing", "running", "syncing"
DONE, FAILED, CUT, BLOCKED = "done", "failed", "cut", "blocked"
ENDED = (DONE, FAILED, CUT, BLOCKED)

ABSENT, READY, BROKEN = "absent", "ready", "broken"


TOLD_TO_STOP, SPOT_NOTICE = "told to stop", "spot notice"
AGENT_DIED = "the box's agent died again and again"
"""Why a box drains before its time; a job's reason begins with it."""

TOLD = (
    *("state", "reason", "attempt", "exit_code", "started_at", "ended_at"),
    *("step", "max_steps", "metrics", "manifest_seq", "synced_at"),
)


@dataclass
class Pinned:
    """How far a set of pins is, or the secrets; `why` says what broke it."""

    state: str = ABSENT
    tries: int = 0
    not_before: float = 0.0
    why: str = ""


@dataclass
class Job:
    """One job of this box. Times are epoch seconds."""

    spec: JobSpec
    state: str = WAITING
    reason: str = ""
    outcome: str = ""
    """How its process ended, for good; `state` follows once the final manifest is committed."""
    attempt: int = 0
    failures: int = 0
    exit_code: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    recalled: bool = False
    """An earlier agent of this box had it in hand, and wrote that down."""
    prepared: bool = False
    prepare_tries: int = 0
    prepare_after: float = 0.0
    alive: bool = False
    told: str = ""
    """Why it got SIGTERM; empty while it hasn't."""
    killed: bool = False
    pid: int = 0
    moved_at: float = 0.0
    """Steady seconds at its last new step, or at its process's start."""
    frozen_at: float | None = None
    """Steady seconds when it was found frozen; while its stacks are taken a step still spares it.
    """
    stacks_kept: bool = False
    frozen: str = ""
    """Why its process was ended as frozen; empty while it wasn't."""
    frozen_stop_at: float = 0.0
    step: int | None = None
    max_steps: int | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    keep_all: bool = False
    """Its whole work folder is taken along: what it was to make isn't where it was to be."""
    checkpoints: frozenset[str] = frozenset()
    """Complete checkpoints on the disk now."""
    synced_checkpoints: frozenset[str] = frozenset()
    """Those that the last sync was asked to take along."""
    withheld: tuple[str, ...] = ()
    """What stays on the box because a secret is in it, in words."""
    sync_began_at: float = 0.0
    sync_after: float = 0.0
    sync_failures: int = 0
    quick_began_at: float = 0.0
    quick_after: float = 0.0
    left_out: tuple[str, ...] = ()
    """What its last sync didn't take along, in words."""
    manifest_seq: int | None = None
    synced_at: float | None = None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def begins(self, steady: float) -> None:
        """A new process of it starts."""
        self.frozen, self.killed = "", False
        self.moved(steady)

    def moved(self, steady: float) -> None:
        """It told a new step."""
        self.moved_at, self.frozen_at, self.stacks_kept = steady, None, False

    def stops(self, why: str, steady: float, *, frozen: bool, hard: bool) -> None:
        """Its process gets a signal; the first reason of each kind stays."""
        self.killed = hard
        if not frozen:
            self.told = self.told or why
        elif not self.frozen:
            self.frozen, self.frozen_stop_at = why, steady

    def refuse(self, why: str) -> None:
        """Not all that it made could be kept, nor ever will be."""
        self.outcome = FAILED if self.outcome == DONE else self.outcome
        self.reason = f"{self.reason}; {why}" if self.reason else why

    def take(self, status: dict[str, Any]) -> None:
        """Be what an earlier life of this job said it was."""
        for key in TOLD:
            if key in status:
                setattr(self, key, status[key])

    def status(self, box: str, now: float) -> dict[str, Any]:
        """status.json of the job."""
        told = {key: getattr(self, key) for key in TOLD}
        return {"job": self.name, "box": box, "at": now} | told | {"reason": self.words}

    @property
    def words(self) -> str:
        """Why it is where it is; else, what is left out of its results."""
        if self.reason or not self.left_out:
            return self.reason
        more = f", and {len(self.left_out) - 1} more" if len(self.left_out) > 1 else ""
        return f"left out: {self.left_out[0]}{more}"


@dataclass
class State:
    """The box as a whole. `busy` names the background lanes that have work."""

    spec: BoxSpec
    deadlines: Deadlines
    jobs: dict[str, Job]
    pins: dict[str, Pinned]
    secrets: Pinned = field(default_factory=lambda: Pinned(READY))
    """How far reading them is; never what they hold. Without any they are ready."""
    earlier: Pinned = field(default_factory=lambda: Pinned(READY))
    """How far reading is what an earlier box said of these jobs; ready where there was none."""
    remote: dict[str, str] = field(default_factory=dict)
    """Jobs of other boxes that ours wait for: state words, `waiting` until known."""
    busy: frozenset[str] = frozenset()
    steady: float = 0.0
    """Now, in steady seconds: by them a job is judged, as a wall clock may jump."""
    reported_at: float = 0.0
    polled_at: float = 0.0
    listened_at: float = 0.0
    told: str = ""
    """Why the drain came before its time, if it did."""
    spot_asked_at: float = -math.inf
    """Steady seconds."""
    log_shipped_at: float = 0.0
    off_reported: bool = False
    off_tries: int = 0

    @classmethod
    def of(cls, spec: BoxSpec) -> State:
        jobs = {job.name: Job(job) for job in spec.jobs}
        others = (name for job in spec.jobs for name in job.waits_for if name not in jobs)
        return cls(
            spec=spec,
            deadlines=Deadlines(spec.drain_at, spec.poweroff_at),
            jobs=jobs,
            pins={name: Pinned() for name in spec.pins},
            secrets=Pinned(ABSENT if spec.secrets else READY),
            remote=dict.fromkeys(others, WAITING),
        )

    def stop(self, deadlines: Deadlines, why: str = TOLD_TO_STOP) -> None:
        """Take in that the box is to stop by other deadlines than it had."""
        if deadlines.drain_at < self.deadlines.drain_at:
            self.told = self.told or why
        self.deadlines = deadlines

    def may_tell(self, job: Job) -> bool:
        """Whether what the job says can be searched for secrets: an earlier agent knew them."""
        return self.secrets.state == READY or not job.recalled

    def knows(self, job: Job) -> bool:
        """Whether it's known how far the job came on an earlier box."""
        return self.earlier.state == READY or job.recalled

    def phase(self, now: float) -> str:
        """bootstrap, running, draining or off."""
        if all(job.ended for job in self.jobs.values()) or now >= self.deadlines.flush_by:
            return "off"
        if now >= self.deadlines.drain_at:
            return "draining"
        started = any(job.attempt for job in self.jobs.values())
        return "running" if started else "bootstrap"

    def word(self, name: str) -> str:
        """State word of any job that ours wait for; one counts as done once it has ended well."""
        job = self.jobs.get(name)
        if job is None:
            return self.remote[name]
        return job.outcome or job.state
