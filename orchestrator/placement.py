"""Which box runs a job that asks for a GPU instead of a box. Pure, and the same each time.

Longest first, each onto the box of its GPU that is then done first, so that boxes of a kind end
about together and none bills while another works. On a box, jobs keep the order of the file.
"""

from __future__ import annotations

from datetime import timedelta

from orchestrator.catalog import Catalog
from orchestrator.duration import format_duration
from orchestrator.faults import Fault
from orchestrator.quote import BOOT
from orchestrator.schedule import box_end, expected_slots
from orchestrator.spec import RunbookSpec


def gpus_of(spec: RunbookSpec, catalog: Catalog) -> dict[str, str]:
    """The GPU of each box's first choice of type; boxes of unknown types are left out."""
    types = catalog.table.types
    found = {name: types.get(box.instance) for name, box in spec.boxes.items()}
    return {name: kind.gpu for name, kind in found.items() if kind and kind.gpu}


def place(spec: RunbookSpec, catalog: Catalog) -> tuple[RunbookSpec, list[Fault]]:
    """The runbook with a box in the place of each `gpu`, and what doesn't fit.

    The runbook must be without faults otherwise: each `gpu` is that of a box, each such job has
    its `hours`, needs have no cycle.
    """
    open_jobs = [name for name, job in spec.jobs.items() if job.gpu]
    if not open_jobs:
        return spec, []
    gpus = gpus_of(spec, catalog)
    choices = {
        name: sorted(box for box, gpu in gpus.items() if gpu == spec.jobs[name].gpu)
        for name in open_jobs
    }
    for name in sorted(open_jobs, key=lambda name: _turn(spec, name, len(choices[name]))):
        spec = _onto(spec, name, _best(spec, name, choices[name]))
    return spec, _late(spec, {spec.jobs[name].box: choices[name] for name in open_jobs})


def _turn(spec: RunbookSpec, name: str, choices: int) -> tuple[bool, timedelta, str]:
    """Those that have no choice come first: what waits for them then knows until when."""
    return choices > 1, -(spec.jobs[name].hours or timedelta()), name


def _best(spec: RunbookSpec, name: str, boxes: list[str]) -> str:
    """The box that is done first with the job; one that it fits on, if there is any."""
    ends = {box: _end_with(spec, name, box) for box in boxes}
    fits = [box for box in boxes if ends[box] <= _room(spec, box) and _outlives(spec, name, box)]
    return min(fits or boxes, key=lambda box: (ends[box], box))


def _end_with(spec: RunbookSpec, name: str, box: str) -> timedelta:
    tried = _onto(spec, name, box)
    return box_end(tried, box, expected_slots(tried))


def _outlives(spec: RunbookSpec, name: str, box: str) -> bool:
    """A box must not power off while what its job needs may still be made elsewhere.

    Nor may a box that is to power off before this one wait for the job.
    """
    needed = (spec.jobs[other].box for other in spec.needed_by(spec.jobs[name]))
    waiting = (job.box for job in spec.jobs.values() if name in spec.needed_by(job))
    hours = spec.boxes[box].hours
    return all(spec.boxes[other].hours <= hours for other in needed if other) and all(
        spec.boxes[other].hours >= hours for other in waiting if other
    )


def _onto(spec: RunbookSpec, name: str, box: str) -> RunbookSpec:
    job = spec.jobs[name].model_copy(update={"box": box, "gpu": ""})
    return spec.model_copy(update={"jobs": {**spec.jobs, name: job}})


def _room(spec: RunbookSpec, name: str) -> timedelta:
    """What the jobs of a box have, of its hours, on AWS: without boot and drain."""
    box = spec.boxes[name]
    return box.hours - box.drain - BOOT["aws"]


def _late(spec: RunbookSpec, alike: dict[str, list[str]]) -> list[Fault]:
    """Of the boxes that were given a job, each with those of its kind."""
    slots = expected_slots(spec)
    ends = {box: box_end(spec, box, slots) for box in spec.boxes if box in alike}
    return [
        Fault(
            ("boxes", box, "hours"),
            f"the jobs placed on it are expected to end {format_duration(end + BOOT['aws'])} "
            f"after launch, but drain begins after "
            f"{format_duration(spec.boxes[box].hours - spec.boxes[box].drain)}",
            f"Give {' and '.join(alike[box])} more hours, or add another box of the kind.",
        )
        for box, end in ends.items()
        if end > _room(spec, box)
    ]
