"""When each job is expected to start and end, by the rule that a box's agent follows. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from orchestrator.quote import BOOT, Cloud
from orchestrator.spec import JobSpec, RunbookSpec

_NONE = timedelta()


@dataclass(frozen=True)
class Slot:
    """A job's expected time, from the end of its box's boot."""

    start: timedelta
    end: timedelta


def expected_lives(spec: RunbookSpec, cloud: Cloud) -> dict[str, timedelta]:
    """How long each box is expected to live: it ends with its last job, at latest at power-off."""
    slots = expected_slots(spec)
    return {
        name: min(BOOT[cloud] + box_end(spec, name, slots), box.hours)
        for name, box in spec.boxes.items()
    }


def expected_slots(spec: RunbookSpec) -> dict[str, Slot]:
    """A box runs one job at a time: the first of the file whose needs have all ended.

    Leaves out jobs that have no box yet; what they are needed for doesn't wait for them.
    """
    placed = {name: job for name, job in spec.jobs.items() if job.box in spec.boxes}
    needs = {
        name: [other for other in spec.needed_by(job) if other in placed]
        for name, job in placed.items()
    }
    slots: dict[str, Slot] = {}
    free = dict.fromkeys(spec.boxes, _NONE)
    while ready := [n for n in placed if n not in slots and all(o in slots for o in needs[n])]:
        starts = {name: _start(slots, needs[name], free[placed[name].box]) for name in ready}
        name = min(ready, key=starts.__getitem__)
        job = placed[name]
        slots[name] = Slot(starts[name], starts[name] + expected_time(spec, job))
        free[job.box] = slots[name].end
    return slots


def box_end(spec: RunbookSpec, box: str, slots: dict[str, Slot]) -> timedelta:
    """When its last job ends, from the end of its boot."""
    mine = (slots[name].end for name, job in spec.jobs.items() if job.box == box)
    return max(mine, default=_NONE)


def expected_time(spec: RunbookSpec, job: JobSpec) -> timedelta:
    """A job's own estimate, else all the time its box has before it drains."""
    box = spec.boxes[job.box]
    return job.hours or box.hours - box.drain


def _start(slots: dict[str, Slot], needs: list[str], free: timedelta) -> timedelta:
    return max([free, *(slots[other].end for other in needs)])
