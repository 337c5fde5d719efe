"""When to stop what runs: at the drain, when it is frozen, and the box itself at the end. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.box.actions import Action, KeepStacks, Mark, PowerOff, Report, Stop
from orchestrator.box.state import CUT, TOLD_TO_STOP, Job, State

if TYPE_CHECKING:
    from collections.abc import Iterator

OFF_TRIES = 3
# What a frozen job gets for its stacks to be written down, and then to heed SIGTERM.
STACKS_S = 20.0
FROZEN_GRACE_S = 30.0


def stops(state: State, now: float) -> Iterator[Action]:
    why = state.told or "told to stop at the deadline"
    for job in state.jobs.values():
        if not job.alive or now < state.deadlines.drain_at:
            continue
        if not job.told:
            yield Stop(job.name, hard=False, why=why)
        elif now >= state.deadlines.kill_at and not job.killed:
            yield Stop(job.name, hard=True, why=why)


def frozen(state: State) -> Iterator[Action]:
    """Only steps count: a busy GPU or CPU is no proof of life."""
    for job in state.jobs.values():
        limit = job.spec.stall_s
        if not job.alive or limit is None:
            continue
        why = f"frozen: {_unheard(job)} for {limit:g} s, its stacks are in stacks.txt"
        if job.frozen:
            grace = min(FROZEN_GRACE_S, limit)
            if state.steady - job.frozen_stop_at >= grace and not job.killed:
                yield Stop(job.name, hard=True, why=why, frozen=True)
        elif state.steady - job.moved_at < limit:
            continue
        elif job.frozen_at is None and "stacks" not in state.busy:
            yield KeepStacks(job.name)
        elif _stacks_are_kept(state, job):
            yield Stop(job.name, hard=False, why=why, frozen=True)


def cut_the_rest(state: State) -> Iterator[Action]:
    cause = state.told or "the deadline came"
    if cause == TOLD_TO_STOP:
        cause = "the box was told to stop"
    for job in state.jobs.values():
        if not (job.ended or job.outcome or job.alive):
            before = "it was started again" if job.attempt else "it started"
            yield Mark(job.name, CUT, f"{cause} before {before}")


def leave(state: State, now: float) -> Iterator[Action]:
    """Say goodbye, then power off; nothing said can hold the box beyond its power-off time."""
    half_way = (state.deadlines.flush_by + state.deadlines.poweroff_at) / 2
    if now < half_way and any(lane.startswith("sync ") for lane in state.busy):
        return  # what has gone up is being committed
    gave_up = state.off_tries >= OFF_TRIES and now >= state.deadlines.flush_by
    if state.off_reported or gave_up or now >= state.deadlines.poweroff_at:
        yield PowerOff()
    elif "report" not in state.busy and now - state.reported_at >= min(1.0, state.spec.tick_s):
        yield Report("off", log=True)


def _unheard(job: Job) -> str:
    """A command may not know that it's to tell its steps, or where."""
    never = job.spec.command is not None and job.step is None
    return "has reported no step at all in $GPURUN_METRICS" if never else "no new step"


def _stacks_are_kept(state: State, job: Job) -> bool:
    """Or there is no hope of them."""
    since = job.frozen_at
    return job.stacks_kept or since is None or state.steady - since >= STACKS_S
