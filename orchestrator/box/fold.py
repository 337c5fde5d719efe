"""Takes into the state what a lane brought back. A failure is answered here, by trying later."""

from __future__ import annotations

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
from orchestrator.box.connection import StoreDown
from orchestrator.box.decide import TRIES
from orchestrator.box.inputs import InputMissing
from orchestrator.box.install import NoGpu
from orchestrator.box.lanes import Outcome
from orchestrator.box.rounds import Synced
from orchestrator.box.state import BLOCKED, BROKEN, DONE, FAILED, READY, SPOT_NOTICE, Job, State
from orchestrator.box.verdict import backoff_s
from orchestrator.box.work import Prepared

INSTALL_TRIES = 2
# With the pauses between them half a minute: what is kept elsewhere may be away for a moment.
SECRET_TRIES = 6


def fold(state: State, outcome: Outcome, now: float) -> Job | None:
    """The job that this moved on, if one did: it's worth writing down."""
    action = outcome.action
    if isinstance(action, Install):
        _installed(state, action, outcome.error, now)
    elif isinstance(action, ReadSecrets):
        _secrets_read(state, outcome.error, now)
    elif isinstance(action, LookBack):
        _looked_back(state, outcome, now)
    elif isinstance(action, Prepare):
        return _prepared(state.jobs[action.job], outcome, now)
    elif isinstance(action, Sync):
        return _synced(state.jobs[action.job], action, outcome, now)
    elif isinstance(action, Poll) and isinstance(outcome.value, dict):
        state.remote |= outcome.value
    elif isinstance(action, Listen) and outcome.value is True:
        state.stop(state.deadlines.from_now(now))
    elif isinstance(action, AskSpot) and isinstance(outcome.value, float):
        state.stop(state.deadlines.by_notice(outcome.value, now), SPOT_NOTICE)
    elif isinstance(action, KeepStacks):
        state.jobs[action.job].stacks_kept = True
    elif isinstance(action, Report) and action.phase == "off":
        state.off_reported = outcome.error is None
        state.off_tries += 1
    return None


def _installed(state: State, action: Install, error: Exception | None, now: float) -> None:
    pinned = state.pins[action.pins]
    if error is None:
        pinned.state = READY
        return
    pinned.tries += 1
    pinned.why, pinned.not_before = str(error), now + backoff_s(pinned.tries)
    if isinstance(error, NoGpu) or pinned.tries >= INSTALL_TRIES:
        pinned.state = BROKEN


def _secrets_read(state: State, error: Exception | None, now: float) -> None:
    secrets = state.secrets
    if error is None:
        secrets.state = READY
        return
    secrets.tries += 1
    secrets.why, secrets.not_before = str(error), now + backoff_s(secrets.tries)
    if secrets.tries >= SECRET_TRIES:
        secrets.state = BROKEN


def _looked_back(state: State, outcome: Outcome, now: float) -> None:
    """What failed there isn't tried once more here; what was cut goes on."""
    earlier, said = state.earlier, outcome.value
    if not isinstance(said, dict):
        earlier.tries += 1
        earlier.not_before = now + backoff_s(earlier.tries)
        return
    earlier.state = READY
    for name, status in said.items():
        job = state.jobs[name]
        if status.get("state") in (FAILED, BLOCKED) and not (job.recalled or job.attempt):
            job.take(status)
            job.outcome = job.state


def _prepared(job: Job, outcome: Outcome, now: float) -> Job | None:
    value, error = outcome.value, outcome.error
    if isinstance(value, Prepared):
        job.prepared, job.reason = True, ""
        job.attempt = max(job.attempt, value.attempt)
        if value.done is not None:
            job.take(value.done)
            job.state = job.outcome = DONE
        return job
    job.reason, job.prepare_after = str(error), now + backoff_s(job.prepare_tries + 1)
    if isinstance(error, InputMissing):
        job.prepare_tries = TRIES
    elif not isinstance(error, StoreDown):
        job.prepare_tries += 1
    return None


def _synced(job: Job, action: Sync, outcome: Outcome, now: float) -> Job | None:
    value = outcome.value
    if action.quick:
        job.quick_after = now + (backoff_s(1) if outcome.error else 0.0)
        return None
    if isinstance(value, Synced):
        job.left_out = value.notes
        if action.final and value.refused:
            job.refuse(value.refused)
        job.manifest_seq, job.synced_at = value.seq, job.sync_began_at
        job.withheld = value.withheld
        if not action.final or value.whole or value.refused:
            job.sync_failures = 0
            job.state = job.outcome if action.final else job.state
            return job if action.final else None
    # What was to be taken along has to be asked for again.
    job.synced_checkpoints = frozenset()
    job.sync_failures += 1
    job.sync_after = now + backoff_s(job.sync_failures)
    return None
