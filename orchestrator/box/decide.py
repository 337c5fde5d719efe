"""The agent's decisions: from what is known and what time it is to what to do next. Pure.

A job goes waiting → installing → running → syncing → done, failed or cut; blocked if a job it
waits for didn't end well. One job runs at a time. An outcome is final once the process is over;
the state follows when the last manifest is committed.
"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.box.actions import (
    Action,
    AskSpot,
    Install,
    Listen,
    LookBack,
    Mark,
    Poll,
    Prepare,
    ReadSecrets,
    Report,
    Start,
    Sync,
)
from orchestrator.box.reports import console_every_s, poll_every_s
from orchestrator.box.state import (
    ABSENT,
    BLOCKED,
    BROKEN,
    DONE,
    ENDED,
    FAILED,
    INSTALLING,
    READY,
    WAITING,
    Job,
    State,
)
from orchestrator.box.stopping import cut_the_rest, frozen, leave, stops

SPOT_POLL_S = 5.0
DRAIN_RETRY_S = 5.0
TRIES = 3


def decide(state: State, now: float) -> list[Action]:
    """What to do now; nothing twice as long as the first is under way."""
    phase = state.phase(now)
    if phase == "off":
        return [*stops(state, now), *leave(state, now)]
    drains = phase == "draining"
    starts = list(cut_the_rest(state) if drains else _starts(state, now))
    return [
        *_look_back(state, now),
        *_blocked(state),
        *(stops(state, now) if drains else frozen(state)),
        *starts,
        *([] if ReadSecrets() in starts else _secrets_again(state, now)),
        *_syncs(state, now),
        *_listen(state, phase, now),
        *_ask_spot(state),
        *_report(state, phase, now),
    ]


def _look_back(state: State, now: float) -> Iterator[Action]:
    if all(state.knows(job) for job in state.jobs.values()) or "earlier" in state.busy:
        return
    if now >= state.earlier.not_before:
        yield LookBack()


def _blocked(state: State) -> Iterator[Action]:
    for job in state.jobs.values():
        if job.state in (WAITING, INSTALLING) and not job.outcome:
            lost = [name for name in job.spec.waits_for if state.word(name) in ENDED[1:]]
            if lost:
                yield Mark(job.name, BLOCKED, f"{lost[0]} is {state.word(lost[0])}")


def _starts(state: State, now: float) -> Iterator[Action]:
    yield from _poll(state, now)
    yield from _install(state, now)
    if any(job.alive for job in state.jobs.values()):
        return
    for job in state.jobs.values():
        if job.ended or job.outcome or not _needs_met(state, job):
            continue
        if not state.knows(job):
            return
        yield from _advance(state, job, now)
        return


def _poll(state: State, now: float) -> Iterator[Action]:
    open_ones = [name for name, word in state.remote.items() if word not in ENDED]
    due = now - state.polled_at >= poll_every_s(state.spec.tick_s)
    if open_ones and due and "fetch" not in state.busy:
        yield Poll()


def _install(state: State, now: float) -> Iterator[Action]:
    """Install what the next jobs need, in their order, also while another job runs."""
    if "install" in state.busy:
        return
    for job in state.jobs.values():
        if job.ended or job.outcome or job.spec.pins is None or not state.knows(job):
            continue
        pinned = state.pins[job.spec.pins]
        if pinned.state == ABSENT and now >= pinned.not_before:
            yield Install(job.spec.pins)
            return


def _needs_met(state: State, job: Job) -> bool:
    return all(state.word(name) == DONE for name in job.spec.waits_for)


def _advance(state: State, job: Job, now: float) -> Iterator[Action]:
    pinned = state.pins[job.spec.pins] if job.spec.pins else None
    if pinned and pinned.state == BROKEN:
        yield Mark(job.name, FAILED, pinned.why)
    elif job.prepare_tries >= TRIES:
        yield Mark(job.name, FAILED, job.reason)
    elif job.state == WAITING:
        yield Mark(job.name, INSTALLING)
    elif not job.prepared:
        if "fetch" not in state.busy and now >= job.prepare_after:
            yield Prepare(job.name)
    elif pinned and pinned.state != READY:
        return
    elif state.secrets.state == BROKEN:
        yield Mark(job.name, FAILED, state.secrets.why)
    elif state.secrets.state == READY:
        yield Start(job.name)
    else:
        yield from _read_secrets(state, now)


def _read_secrets(state: State, now: float) -> Iterator[Action]:
    if "secrets" not in state.busy and now >= state.secrets.not_before:
        yield ReadSecrets()


def _secrets_again(state: State, now: float) -> Iterator[Action]:
    """Of a job that an earlier agent ran nothing goes out before we know what mustn't."""
    if not all(state.may_tell(job) for job in state.jobs.values()):
        yield from _read_secrets(state, now)


def _syncs(state: State, now: float) -> Iterator[Action]:
    """Each job by itself: what one has to upload never keeps another waiting."""
    jobs = sorted(state.jobs.values(), key=lambda job: (not job.outcome, job.sync_began_at))
    for job in jobs:
        sync = Sync(job.name, final=bool(job.outcome))
        quick = Sync(job.name, final=False, quick=True)
        if sync.lane not in state.busy:
            if _sync_due(state, job, now):
                yield sync
        elif quick.lane not in state.busy and _quick_due(state, job, now):
            yield quick


def _quick_due(state: State, job: Job, now: float) -> bool:
    """A round of everything is under way for so long that new lines would wait too long."""
    began_at = max(job.sync_began_at, job.quick_began_at)
    return now >= job.quick_after and now - began_at >= state.spec.loss_bound_s / 2


def _sync_due(state: State, job: Job, now: float) -> bool:
    if job.ended or not job.attempt or _sync_waits(state, job, now):
        return False
    if not state.may_tell(job):
        return False
    if job.outcome or job.checkpoints - job.synced_checkpoints:
        return True
    return now - job.sync_began_at >= state.spec.loss_bound_s / 2


def _sync_waits(state: State, job: Job, now: float) -> bool:
    """After a failure, but never for long in a drain: what isn't in by its end is lost."""
    draining = now >= state.deadlines.drain_at
    return now < job.sync_after and not (draining and now - job.sync_began_at >= DRAIN_RETRY_S)


def _listen(state: State, phase: str, now: float) -> Iterator[Action]:
    """Ask once a tick, as long as the answer can change anything."""
    due = phase != "draining" and now - state.listened_at >= state.spec.tick_s
    if due and "listen" not in state.busy:
        yield Listen()


def _ask_spot(state: State) -> Iterator[Action]:
    """Also while it drains: a notice may leave less time than that."""
    waits = state.steady - state.spot_asked_at < SPOT_POLL_S or "spot" in state.busy
    if state.spec.spot and state.deadlines.noticed_at is None and not waits:
        yield AskSpot()


def _report(state: State, phase: str, now: float) -> Iterator[Action]:
    if "report" not in state.busy and now - state.reported_at >= state.spec.tick_s:
        log_due = now - state.log_shipped_at >= console_every_s(state.spec.tick_s)
        yield Report(phase, log=log_due)
