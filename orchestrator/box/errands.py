"""The agent's slow work with all that it needs, each piece ready for a lane beside the loop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_UP, Decimal
from pathlib import Path
from typing import Any

from orchestrator.box import work
from orchestrator.box.actions import (
    AskSpot,
    Install,
    KeepStacks,
    Listen,
    LookBack,
    Poll,
    Prepare,
    ReadSecrets,
    Report,
    Sync,
)
from orchestrator.box.allowance import Allowance
from orchestrator.box.body import Body
from orchestrator.box.deadline import Clock
from orchestrator.box.install import install
from orchestrator.box.process import Place
from orchestrator.box.redact import Redactor, noted
from orchestrator.box.reports import CONSOLE_BYTES, fit
from orchestrator.box.rounds import Round
from orchestrator.box.scan import EVERYTHING
from orchestrator.box.spec import BoxSpec
from orchestrator.box.state import ENDED, Job, State
from orchestrator.box.sync import Syncer

log = logging.getLogger("gpurun")
LANES = ("install", "secrets", "earlier", "fetch", "report", "listen", "spot", "stacks")
Errand = (
    Install
    | Prepare
    | ReadSecrets
    | LookBack
    | Poll
    | Listen
    | AskSpot
    | Sync
    | Report
    | KeepStacks
)


@dataclass(frozen=True)
class Host:
    """What the agent has been told about its machine; `booted_at` in epoch seconds.

    `attempt`: the how many-th box it is in this place, from 1; 0 when nobody says.
    """

    root: Path
    poweroff: tuple[str, ...]
    wheels: Path | None
    instance_id: str
    booted_at: float
    attempt: int = 0


def lanes_of(spec: BoxSpec) -> tuple[str, ...]:
    """Each job has its own for its results: one that hangs or takes hours delays no other."""
    names = [job.name for job in spec.jobs]
    quick = (Sync(name, final=False, quick=True).lane for name in names)
    return (*LANES, *(Sync(name, final=False).lane for name in names), *quick)


class Errands:
    """Makes an action into work for its lane. What the work reads is fixed when it's made."""

    def __init__(self, state: State, host: Host, clock: Clock, body: Body) -> None:
        self._state, self._host, self._clock, self._body = state, host, clock, body
        spec = state.spec
        self._store = body.store(spec, fast=False)
        self._fast = body.store(spec, fast=True)
        self.redact = Redactor()
        """Learns the jobs' secrets once they are read; all that leaves the box passes it."""
        self._places = {name: Place(host.root, name) for name in state.jobs}
        allowance = Allowance(spec.upload_bytes, spec.upload_objects, tuple(state.jobs))
        self._syncers = {
            name: Syncer(self._store, spec.run, name, place.folder, allowance, redact=self.redact)
            for name, place in self._places.items()
        }
        self._told: dict[str, dict[str, Any]] = {}
        self._console: bytes | None = None
        """As it was shipped last."""

    def heard(self, statuses: dict[str, Any]) -> None:
        """The bucket has these statuses now; they needn't be told again."""
        self._told |= statuses

    def of(self, action: Errand, now: float) -> tuple[str, Callable[[], object]]:
        """The lane of a slow action, and its work with everything it needs from the loop."""
        host, state = self._host, self._state
        if isinstance(action, Install):
            pins = state.spec.pins[action.pins]
            log.info("installing pins %s", action.pins)
            return "install", lambda: install(host.root, pins, host.wheels)
        if isinstance(action, Prepare):
            job, here = state.jobs[action.job].spec, frozenset(state.jobs)
            return "fetch", lambda: work.prepare(self._store, host.root, job, here)
        if isinstance(action, ReadSecrets):
            log.info("reading the secrets %s", ", ".join(sorted(state.spec.secrets)))
            return "secrets", lambda: self._body.secrets(state.spec)
        if isinstance(action, Poll):
            state.polled_at = now
            names = [name for name, word in state.remote.items() if word not in ENDED]
            return "fetch", lambda: work.poll(self._store, names)
        if isinstance(action, LookBack):
            return "earlier", lambda: work.look_back(self._fast, list(state.jobs))
        if isinstance(action, Listen):
            state.listened_at = now
            return "listen", lambda: work.told_to_stop(self._fast, state.spec.box)
        if isinstance(action, AskSpot):
            state.spot_asked_at = state.steady
            return "spot", self._body.spot_notice
        if isinstance(action, KeepStacks):
            return "stacks", self._keep_stacks(state.jobs[action.job], now)
        if isinstance(action, Sync):
            return action.lane, self._sync(state.jobs[action.job], action, now)
        return "report", self._report(action, now)

    def _keep_stacks(self, job: Job, now: float) -> Callable[[], object]:
        place, pid = self._places[job.name], job.pid
        job.frozen_at = self._state.steady
        log.warning("%s: no new step for %s s: keeping its stacks", job.name, job.spec.stall_s)
        return lambda: self._body.keep_stacks(place, pid, now)

    def _sync(self, job: Job, action: Sync, now: float) -> Callable[[], object]:
        if action.quick:
            job.quick_began_at = now
        else:
            job.sync_began_at, job.synced_checkpoints = now, job.checkpoints
        spec, clock = self._state.spec, self._clock.now
        turn_s, waits = spec.loss_bound_s / 2, not (action.final or action.quick)
        round_ = Round(
            attempt=job.attempt,
            step=job.step,
            final=action.final,
            outcome=job.outcome,
            status={**self._status(job, now), "state": job.outcome, "reason": job.reason},
            results=EVERYTHING if job.keep_all else job.spec.results,
            now=now,
            quiet_s=min(2.0, spec.loss_bound_s / 4),
            time_is_up=lambda: clock() > self._state.deadlines.flush_by,
            only_own=action.quick,
            clock=clock,
            commit_s=turn_s,
            gives_way=lambda: waits and (bool(job.outcome) or clock() - now >= turn_s),
        )
        return lambda: self._syncers[job.name].sync(round_)

    def _report(self, action: Report, now: float) -> Callable[[], object]:
        state, statuses = self._state, self._statuses(now)
        state.reported_at = now
        if action.log:
            state.log_shipped_at = now
        fresh = {
            name: status
            for name, status in statuses.items()
            if state.may_tell(state.jobs[name]) and self._is_news(status)
        }
        beat = self._heartbeat(action.phase, statuses, now)

        def send() -> dict[str, dict[str, Any]]:
            console = self._news_of_console() if action.log else None
            work.report(self._fast, state.spec.box, beat, fresh, console)
            self._console = self._console if console is None else console
            return fresh

        return send

    def _news_of_console(self) -> bytes | None:
        """Its end; None while it is as it was shipped."""
        console = work.tail(self._host.root / "console.log", CONSOLE_BYTES, self.redact)
        return None if console == self._console else console

    def _statuses(self, now: float) -> dict[str, dict[str, Any]]:
        """Nothing of a job before it's known what was said of it: that may be its last word."""
        known = (job for job in self._state.jobs.values() if self._state.knows(job))
        return {job.name: self._status(job, now) for job in known}

    def _status(self, job: Job, now: float) -> dict[str, Any]:
        status = job.status(self._state.spec.box, now)
        if not self._state.may_tell(job):  # its reason was cleaned before it was written down
            status["metrics"] = {}
        status["reason"] = noted(job.words, job.withheld)
        return fit(self.redact.value(status))

    def _is_news(self, status: dict[str, Any]) -> bool:
        told = self._told.get(status["job"])
        return told is None or told | {"at": 0} != status | {"at": 0}

    def _heartbeat(self, phase: str, jobs: dict[str, Any], now: float) -> dict[str, Any]:
        spec, deadlines = self._state.spec, self._state.deadlines
        hours = Decimal(str(round(max(0.0, now - self._host.booted_at), 3))) / 3600
        usd = (spec.price_usd_per_hour * hours).quantize(Decimal("0.01"), ROUND_UP)
        return {
            "format": 1,
            "at": now,
            "box": spec.box,
            "instance_id": self._host.instance_id,
            "phase": phase,
            "drain_at": deadlines.drain_at,
            "poweroff_at": deadlines.poweroff_at,
            "usd": str(usd),
            "jobs": jobs,
            "disk_free_bytes": self._body.disk_free(self._host.root),
        }
