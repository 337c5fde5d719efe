"""What each box and each job of a runbook is given: prices, deadlines, order and times. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from orchestrator.money import hours_of
from orchestrator.planned import PlannedBox, PlannedJob, Range, Reference, SpotQuote
from orchestrator.programs import STEPS_A_LINE
from orchestrator.quote import BOOT, Cloud, expected_box_usd, worst_box_usd
from orchestrator.schedule import expected_lives, expected_slots, expected_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.catalog import Catalog
    from orchestrator.offer import Offer
    from orchestrator.runbook import Runbook
    from orchestrator.spec import JobSpec

SHORTEST_STALL = timedelta(hours=1)
LINES_A_STALL = 10
"""Unless the runbook says so itself: lines of metrics that must be missing, and for how long."""
SPOT_QUOTAS = {"L-DB2E81BA": "L-3819A6DF"}
"""Which quota counts spot instances of the families that another counts on demand."""


def boxes_of(
    runbook: Runbook, offer: Offer, start: datetime, cloud: Cloud
) -> tuple[PlannedBox, ...]:
    lives = expected_lives(runbook, cloud)
    return tuple(_box(name, runbook, offer, start, lives[name]) for name in runbook.boxes)


def spot_of(
    runbook: Runbook,
    offer: Offer,
    catalog: Catalog,
    lives: Mapping[str, timedelta],
    results: Decimal,
) -> SpotQuote:
    """The same lives at the spot prices on record; a price that isn't there is never guessed."""
    costs, missing = [], set()
    for name, box in runbook.boxes.items():
        price = catalog.spot(box.instance, offer.region)
        if price is None:
            missing.add(box.instance)
        else:
            costs.append(expected_box_usd(box, price, offer.storage, lives[name]))
    return SpotQuote(
        expected_usd=None if missing else sum(costs, results),
        as_of=catalog.prices.spot.retrieved_at,
        source=catalog.prices.spot.source,
        missing=tuple(sorted(missing)),
    )


def jobs_of(runbook: Runbook, cloud: Cloud) -> tuple[PlannedJob, ...]:
    slots, boot = expected_slots(runbook), BOOT[cloud]
    return tuple(
        _job(name, runbook, slots[name].start + boot, slots[name].end + boot)
        for name in runbook.jobs
    )


def _box(
    name: str, runbook: Runbook, offer: Offer, start: datetime, life: timedelta
) -> PlannedBox:
    box = runbook.boxes[name]
    kinds = [offer.types[kind] for kind in (box.instance, *box.fallbacks)]
    prices = {kind.name: offer.prices[kind.name].usd_per_hour for kind in kinds}
    dearest = max(prices.values())
    poweroff = start + box.hours
    return PlannedBox(
        name=name,
        instance=box.instance,
        fallbacks=box.fallbacks,
        price_usd_per_hour=prices[box.instance],
        worst_price_usd_per_hour=dearest,
        prices_usd_per_hour=prices,
        price_source=offer.prices[box.instance].source,
        hours=_hours(box.hours),
        drain_at=poweroff - box.drain,
        poweroff_at=poweroff,
        cloud_at=poweroff + box.cloud_margin,
        disk_gb=box.disk_gb,
        worst_case_usd=worst_box_usd(box, dearest, offer.storage),
        expected_usd=expected_box_usd(box, prices[box.instance], offer.storage, life),
        expected_hours=_hours(life),
        quota_code=_quota_code(kinds[0].quota_code, spot=box.spot),
        spot=box.spot,
        vcpus=max(kind.vcpus for kind in kinds),
        gpu=kinds[0].gpu,
        gpus=kinds[0].gpus,
        gpu_memory_mib=kinds[0].gpu_memory_mib,
        zones={kind.name: kind.zones[offer.region] for kind in kinds},
    )


def _quota_code(on_demand: str, *, spot: bool) -> str:
    return SPOT_QUOTAS.get(on_demand, on_demand) if spot else on_demand


def _job(name: str, runbook: Runbook, start: timedelta, end: timedelta) -> PlannedJob:
    job, sources = runbook.jobs[name], runbook.sources
    workdir, requirements = sources.workdirs.get(name), sources.requirements.get(name)
    return PlannedJob(
        name=name,
        box=job.box,
        program=job.program,
        command=job.command,
        config=job.config,
        needs=runbook.needed_by(job),
        inputs=job.inputs,
        pins=runbook.pins_of(job),
        requirements=requirements.path if requirements else None,
        requirements_sha256=requirements.sha256 if requirements else None,
        workdir=workdir.path if workdir else None,
        workdir_bytes=workdir.bytes if workdir else 0,
        workdir_files=workdir.files if workdir else 0,
        results=job.results,
        retries=job.retries,
        stall_s=_stall_s(runbook, job),
        expected_hours=_hours(expected_time(runbook, job)),
        expected_start_hours=_hours(start),
        expected_end_hours=_hours(end),
        expect={key: Range(min=one.min, max=one.max) for key, one in job.expect.items()},
        reference={key: Reference(**dict(one)) for key, one in job.reference.items()},
    )


def _stall_s(runbook: Runbook, job: JobSpec) -> int | None:
    """When it counts as frozen; programs that tell no steps, and commands, are never judged."""
    if job.stall:
        return int(job.stall.total_seconds())
    if job.program not in STEPS_A_LINE:
        return None
    steps = job.config.get("max_steps") or job.config.get("steps")
    if not isinstance(steps, int) or steps < 1:
        return int(SHORTEST_STALL.total_seconds())
    line = expected_time(runbook, job) * STEPS_A_LINE[job.program] / steps
    return int(max(SHORTEST_STALL, LINES_A_STALL * line).total_seconds())


def _hours(time: timedelta) -> Decimal:
    """For people and logs; deadlines never come from it."""
    return hours_of(int(time.total_seconds())).quantize(Decimal("0.0001"))
