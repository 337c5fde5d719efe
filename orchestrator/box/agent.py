"""The agent: looks, lets `decide` decide, does it, and waits a tick.

The loop itself never touches the network: uploads, downloads, installs and reports run in lanes
beside it, so that no slow or missing S3 keeps a deadline from being kept.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable

from orchestrator.box import work
from orchestrator.box.actions import (
    Action,
    LookBack,
    Mark,
    PowerOff,
    ReadSecrets,
    Report,
    Start,
    Stop,
)
from orchestrator.box.body import Body
from orchestrator.box.deadline import Clock
from orchestrator.box.decide import decide
from orchestrator.box.errands import Errands, Host, lanes_of
from orchestrator.box.fold import fold
from orchestrator.box.install import python_of
from orchestrator.box.lanes import Lane, Outcome
from orchestrator.box.memory import recall, remember
from orchestrator.box.process import Place, Process, argv, environment
from orchestrator.box.progress import Progress
from orchestrator.box.rounds import Synced
from orchestrator.box.scan import checkpoints, missing
from orchestrator.box.spec import BoxSpec
from orchestrator.box.state import (
    ABSENT,
    AGENT_DIED,
    CUT,
    ENDED,
    FAILED,
    RUNNING,
    SYNCING,
    Job,
    State,
)
from orchestrator.box.verdict import keeps_all, verdict

__all__ = ["Agent", "Host"]

log = logging.getLogger("gpurun")


class Agent:
    """One box's agent. `run` returns when the box has been told to power off."""

    def __init__(self, spec: BoxSpec, host: Host, clock: Clock, body: Body | None = None) -> None:
        self._spec, self._host, self._clock = spec, host, clock
        self._body = body = body or Body()
        self._wake = threading.Event()
        self._lanes: dict[str, Lane] = {n: body.lane(n, self._wake) for n in lanes_of(spec)}
        self._state = State.of(spec)
        if host.attempt != 1:
            self._state.earlier.state = ABSENT
        self._errands = Errands(self._state, host, clock, body)
        self._places = {name: Place(host.root, name) for name in self._state.jobs}
        self._progress = {n: Progress(place.metrics) for n, place in self._places.items()}
        self._processes: dict[str, Process] = {}
        self._secrets: dict[str, str] = {}
        self._notes: set[str] = set()
        self._stopped = self._over = self._is_last = False

    def run(self, *, last_sync: bool = False) -> None:
        """Work until the box is over.

        `last_sync`: agents died again and again. Nothing is started; what lies there is committed
        in the time of a drain, and what fails doesn't end this one.
        """
        signal.signal(signal.SIGTERM, self._on_sigterm)
        self._is_last = last_sync
        self.resume()
        if last_sync:
            now = self._clock.now()
            self._state.stop(self._state.deadlines.from_now(now), AGENT_DIED)
        while not self.tick():
            self._wake.wait(min(0.5, self._spec.tick_s))
            self._wake.clear()

    def tick(self) -> bool:
        """Look, decide, act; True once the box has been told to power off."""
        now = self._clock.now()
        self._guarded(self._look, now)
        for action in decide(self._state, now):
            self._guarded(self._act, action, now)
        return self._over

    def _guarded(self, doing: Callable[..., None], *arguments: object) -> None:
        try:
            doing(*arguments)
        except Exception:
            if not self._is_last:
                raise
            log.exception("goes on")

    def _on_sigterm(self, *_: object) -> None:
        self._stopped = True
        self._wake.set()

    def resume(self) -> None:
        """Go on from what an earlier agent of this box wrote down."""
        for job in self._state.jobs.values():
            self._guarded(self._resume, job)

    def _resume(self, job: Job) -> None:
        place = self._places[job.name]
        job.recalled = recall(job, place.folder)
        if self._is_last and not job.recalled and place.log.exists():
            job.state, job.attempt, job.recalled = RUNNING, 1, True  # what is there still counts
        if not job.recalled:
            return
        process = "killed it" if self._body.end_leftover(place) else "its process had ended"
        self._read_progress(job)
        log.info("%s: an earlier agent left it %s; %s", job.name, job.state, process)
        if job.state == RUNNING and not job.outcome and job.told:
            self._close(job, CUT, job.told)

    def _look(self, now: float) -> None:
        self._state.steady = self._clock.steady()
        if self._stopped:
            self._state.stop(self._state.deadlines.brought_forward(now))
        for lane in self._lanes.values():
            outcome = lane.take()
            if outcome:
                self._take(outcome, now)
        for job in self._state.jobs.values():
            if job.alive:
                self._look_at(job, now)
        self._state.busy = frozenset(n for n, lane in self._lanes.items() if lane.busy)

    def _take(self, outcome: Outcome, now: float) -> None:
        redact = self._errands.redact
        if outcome.error is not None:
            log.warning("%s: %s", outcome.action, redact.text(repr(outcome.error)))
        if isinstance(outcome.action, ReadSecrets) and isinstance(outcome.value, dict):
            self._secrets = outcome.value
            redact.learn(self._secrets)
        if isinstance(outcome.value, Synced):
            for note in set(outcome.value.notes) - self._notes:
                log.warning("%s: %s", outcome.action, redact.text(note))
            self._notes |= set(outcome.value.notes)
        if isinstance(outcome.action, Report | LookBack) and isinstance(outcome.value, dict):
            self._errands.heard(outcome.value)
        job = fold(self._state, outcome, now)
        ended = [it for it in self._state.jobs.values() if it.ended]
        for each in ended if isinstance(outcome.action, LookBack) else [job] if job else []:
            self._note(each)

    def _look_at(self, job: Job, now: float) -> None:
        code = self._processes[job.name].exit_code()
        self._read_progress(job)
        job.checkpoints = checkpoints(self._places[job.name].folder, job.spec.results)
        if code is None:
            return
        job.alive, job.exit_code = False, code
        outcome, reason = verdict(job, code, self._missing(job))
        if (code or job.told) and (said := self._last_words(job)):
            of_log = "; last line of its log" if job.frozen else ""
            reason = f"{reason}{of_log}: {said}"
        if outcome == RUNNING:
            job.failures, job.reason = job.failures + 1, reason
            self._note(job)
        else:
            job.ended_at = now
            self._close(job, outcome, reason)

    def _last_words(self, job: Job) -> str:
        return work.last_words(self._places[job.name].log, self._errands.redact)

    def _read_progress(self, job: Job) -> None:
        progress = self._progress[job.name]
        before = progress.moves
        progress.read()
        if progress.moves != before:
            job.moved(self._state.steady)
        job.step, job.max_steps, job.metrics = progress.step, progress.max_steps, progress.metrics

    def _missing(self, job: Job) -> tuple[str, ...]:
        return missing(self._places[job.name].folder, job.spec.results)

    def _close(self, job: Job, outcome: str, reason: str) -> None:
        """Its process is over for good; what it made has still to be committed."""
        job.outcome, job.reason, job.state = outcome, reason, SYNCING
        job.keep_all = keeps_all(job, outcome, self._missing(job))
        self._note(job)

    def _note(self, job: Job) -> None:
        log.info("%s: %s %s", job.name, job.state, job.reason)
        self._remember(job)

    def _remember(self, job: Job) -> None:
        try:
            remember(job, self._places[job.name].folder)
        except OSError as error:  # a full disk must not cost the results that are on it
            log.warning("%s: not written down: %s", job.name, error)

    def _act(self, action: Action, now: float) -> None:
        if isinstance(action, Mark):
            self._mark(action, now)
        elif isinstance(action, Start):
            self._start(self._state.jobs[action.job], now)
        elif isinstance(action, Stop):
            self._stop(self._state.jobs[action.job], action)
        elif isinstance(action, PowerOff):
            self._power_off()
        else:
            lane, doing = self._errands.of(action, now)
            self._lanes[lane].start(action, doing)
            self._state.busy |= {lane}

    def _mark(self, action: Mark, now: float) -> None:
        job = self._state.jobs[action.job]
        if action.state in ENDED and job.attempt:
            job.ended_at = now
            self._close(job, action.state, action.reason)
            return
        job.state, job.reason = action.state, action.reason
        if action.state in ENDED:
            job.outcome, job.ended_at = action.state, now
        self._note(job)

    def _start(self, job: Job, now: float) -> None:
        place = self._places[job.name]
        pins = self._spec.pins[job.spec.pins] if job.spec.pins else None
        python, gpu = python_of(self._host.root, pins), bool(pins and pins.gpu)
        env = environment(
            self._spec, job.spec, place, python, gpu=gpu, base=os.environ, secrets=self._secrets
        )
        job.attempt, job.started_at = job.attempt + 1, job.started_at or now
        job.state, job.sync_began_at = RUNNING, now
        job.begins(self._state.steady)
        self._note(job)
        try:
            self._progress[job.name].mend()
            command = argv(job.spec, place, python)
            process = self._processes[job.name] = self._body.start(place, command, env)
            job.alive, job.pid = True, process.pid
        except OSError as error:
            self._close(job, FAILED, f"can't be started: {error}")

    def _stop(self, job: Job, action: Stop) -> None:
        log.info("%s: %s%s", job.name, action.why, ", hard" if action.hard else "")
        job.stops(action.why, self._state.steady, frozen=action.frozen, hard=action.hard)
        self._remember(job)
        self._processes[job.name].stop(hard=action.hard)

    def _power_off(self) -> None:
        for job in self._state.jobs.values():
            if job.alive:
                self._processes[job.name].stop(hard=True)
        log.info("powering off")
        self._body.power_off(self._host.poweroff)
        self._over = True
