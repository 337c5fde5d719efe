"""What a runbook's fields say to each other: names that must meet, orders that must hold.

Every check is pure and returns faults; none stops at the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta

from orchestrator.catalog import Catalog
from orchestrator.duration import format_duration
from orchestrator.faults import Fault, Path, did_you_mean
from orchestrator.placement import gpus_of
from orchestrator.spec import NO_PINS, BoxSpec, JobSpec, RunbookSpec


def check_spec(
    spec: RunbookSpec, *, catalog: Catalog, pins: Collection[str], programs: Collection[str]
) -> list[Fault]:
    """Everything that is wrong between the fields of a runbook.

    A job that asks for a GPU may have no box yet; what that decides is checked once it has.
    """
    gpus = gpus_of(spec, catalog)
    return [
        *_whole(spec, catalog, pins),
        *(fault for name, box in spec.boxes.items() for fault in _box(name, box, catalog)),
        *(fault for name in spec.boxes for fault in _idle(name, spec, gpus)),
        *(fault for name in spec.boxes for fault in _other_gpus(name, spec, gpus, catalog)),
        *(fault for name, job in spec.jobs.items() for fault in _job(name, job, spec, gpus)),
        *(
            fault
            for name, job in spec.jobs.items()
            for fault in _software(name, job, pins, programs)
        ),
        *_cycles(spec),
        *_estimates(spec),
    ]


def _whole(spec: RunbookSpec, catalog: Catalog, pins: Collection[str]) -> Iterator[Fault]:
    for kind, things in (("boxes", spec.boxes), ("jobs", spec.jobs)):
        if not things:
            yield Fault((kind,), f"no {kind}", f"Name at least one under `{kind}:`.")
    for index, region in enumerate(spec.regions):
        if region not in catalog.regions:
            fix = did_you_mean(region, catalog.regions)
            yield Fault(("regions", index), f"no region {region!r}", fix)
        elif region in spec.regions[:index]:
            yield Fault(("regions", index), f"{region} is listed twice", "Take one out.")
    yield from _pins(("pins",), spec.pins, pins)


def _pins(path: Path, name: str, known: Collection[str]) -> Iterator[Fault]:
    if name != NO_PINS and name not in known:
        yield Fault(path, f"no pins {name!r}", did_you_mean(name, [*known, NO_PINS]))


def _box(name: str, box: BoxSpec, catalog: Catalog) -> Iterator[Fault]:
    yield from _instance(("boxes", name, "instance"), box.instance, catalog)
    for index, fallback in enumerate(box.fallbacks):
        path = ("boxes", name, "fallbacks", index)
        yield from _instance(path, fallback, catalog)
        if fallback == box.instance or fallback in box.fallbacks[:index]:
            yield Fault(path, f"{fallback} is tried already", "Take it out.")
    if box.drain >= box.hours:
        yield Fault(
            ("boxes", name, "drain"),
            f"drain {format_duration(box.drain)} before a power-off "
            f"{format_duration(box.hours)} after launch would begin before the launch",
            "Deadlines go drain < power-off < cloud: give the box more hours or a shorter drain.",
        )


def _idle(name: str, spec: RunbookSpec, gpus: Mapping[str, str]) -> Iterator[Fault]:
    """Not of a box that a job asking for a GPU may be meant for, be the GPU misspelled."""
    wanted = {job.gpu for job in spec.jobs.values() if job.gpu}
    if wanted and (gpus.get(name, "") in {"", *wanted} or not wanted <= {*gpus.values()}):
        return
    if not any(job.box == name for job in spec.jobs.values()):
        yield Fault(("boxes", name), "no job runs on it", "Give it a job or take it out.")


def _other_gpus(
    name: str, spec: RunbookSpec, gpus: Mapping[str, str], catalog: Catalog
) -> Iterator[Fault]:
    """A job that asks for a GPU must not land on another because its box fell back."""
    wanted = gpus.get(name)
    if not wanted or all(job.gpu != wanted for job in spec.jobs.values()):
        return
    for index, fallback in enumerate(spec.boxes[name].fallbacks):
        kind = catalog.table.types.get(fallback)
        if kind and kind.gpu and kind.gpu != wanted:
            yield Fault(
                ("boxes", name, "fallbacks", index),
                f"{fallback} has {kind.gpu}, and jobs with `gpu: {wanted}` may run on this box",
                "Take it out, or give those jobs a `box`.",
            )


def _instance(path: Path, name: str, catalog: Catalog) -> Iterator[Fault]:
    if name in catalog.table.types and name not in catalog.names:
        yield Fault(path, f"{name} has no GPU", "Take one of the g6 and g6e families.")
    elif name not in catalog.names:
        yield Fault(path, f"no instance type {name!r}", did_you_mean(name, catalog.names))


def _job(name: str, job: JobSpec, spec: RunbookSpec, gpus: Mapping[str, str]) -> Iterator[Fault]:
    here = ("jobs", name)
    if job.gpu and job.gpu not in gpus.values() and len(gpus) == len(spec.boxes):
        fix = did_you_mean(job.gpu, sorted(set(gpus.values())))
        yield Fault((*here, "gpu"), f"no box has a {job.gpu!r}", fix)
    if job.box not in spec.boxes and not job.gpu:
        yield Fault((*here, "box"), f"no box {job.box!r}", did_you_mean(job.box, spec.boxes))
    named: list[tuple[Path, str]] = [
        ((*here, "needs", index), other) for index, other in enumerate(job.needs)
    ]
    named += [((*here, "inputs", key, "job"), item.job) for key, item in job.inputs.items()]
    for path, other in named:
        if other not in spec.jobs:
            yield Fault(path, f"no job {other!r}", did_you_mean(other, set(spec.jobs) - {name}))
        else:
            yield from _outlived(path, job, spec.jobs[other], other, spec)
    for index, result in enumerate(job.results):
        if result in job.results[:index]:
            yield Fault((*here, "results", index), f"{result} is listed twice", "Take one out.")


def _outlived(
    path: Path, job: JobSpec, other: JobSpec, name: str, spec: RunbookSpec
) -> Iterator[Fault]:
    own, theirs = spec.boxes.get(job.box), spec.boxes.get(other.box)
    if own is None or theirs is None or own is theirs or theirs.hours <= own.hours:
        return
    yield Fault(
        path,
        f"{name} may still run on box {other.box} ({format_duration(theirs.hours)}) when box "
        f"{job.box} powers off after {format_duration(own.hours)}",
        f"Give {job.box} at least as many hours as {other.box}.",
    )


def _software(
    name: str, job: JobSpec, pins: Collection[str], programs: Collection[str]
) -> Iterator[Fault]:
    if job.program is not None and job.program not in programs:
        fix = did_you_mean(job.program, programs)
        yield Fault(("jobs", name, "program"), f"no program {job.program!r}", fix)
    if job.pins is not None:
        yield from _pins(("jobs", name, "pins"), job.pins, pins)


def _cycles(spec: RunbookSpec) -> Iterator[Fault]:
    """Each ring once, at the job of it that comes first in the file."""
    order = list(spec.jobs)
    for name in order:
        ring = _ring(spec, name)
        if ring and min(ring, key=order.index) == name:
            way = " -> ".join([*ring, name])
            yield Fault(("jobs", name), f"waits for itself: {way}", "Take one `needs` out of it.")


def _ring(spec: RunbookSpec, start: str) -> list[str]:
    """A shortest way from the job through what it needs back to itself; empty if there is none."""
    ways, seen = [[start]], {start}
    for way in ways:
        for other in spec.needed_by(spec.jobs[way[-1]]):
            if other == start:
                return way
            if other in spec.jobs and other not in seen:
                seen.add(other)
                ways.append([*way, other])
    return []


def _estimates(spec: RunbookSpec) -> Iterator[Fault]:
    """Jobs that by their own estimate can't end before their box drains."""
    for name, box in spec.boxes.items():
        mine = [job.hours for job in spec.jobs.values() if job.box == name and job.hours]
        total, room = sum(mine, timedelta()), box.hours - box.drain
        if total > room > timedelta(0):
            yield Fault(
                ("boxes", name, "hours"),
                f"its jobs expect {format_duration(total)}, but drain begins after "
                f"{format_duration(room)}",
                "Give the box more hours, or correct the jobs' `hours`.",
            )
