"""A plan as a person sees it before paying: boxes, deadlines, jobs, the sum against the cap."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from orchestrator.console.terminal import table_of
from orchestrator.money import usd
from orchestrator.pins import pin_sizes
from orchestrator.settings import variable

if TYPE_CHECKING:
    from decimal import Decimal

    from orchestrator.plan import Plan, PlannedJob

_SHORTEST_STALL = timedelta(hours=1)


def plan_view(plan: Plan) -> Group:
    """Boxes with their price, their deadlines, the jobs, and the sum against the cap."""
    title = f"Plan {plan.name} · {plan.cloud} · {plan.region}"
    boxes = table_of(
        title, ("box", "instance", "GPU", "$/h", "hours", "disk", "worst", "expected")
    )
    month = f"{min(box.drain_at for box in plan.boxes):%b %Y}"
    columns = ("box", "drain", "power-off", "cloud", "vCPU", "quota")
    ends = table_of(f"Deadlines (day and time in UTC, {month})", columns)
    for box in plan.boxes:
        gpu = f"{box.gpus}×{box.gpu}" if box.gpus > 1 else box.gpu
        price, hours = str(box.price_usd_per_hour), f"{box.hours.normalize():f}"
        money = (usd(box.worst_case_usd), usd(box.expected_usd))
        kind = f"{box.instance} spot" if box.spot else box.instance
        boxes.add_row(box.name, kind, gpu, price, hours, f"{box.disk_gb} GB", *money)
        times = (f"{at:%d %H:%M:%S}" for at in (box.drain_at, box.poweroff_at, box.cloud_at))
        ends.add_row(box.name, *times, str(box.vcpus), box.quota_code)
    parts = ("job", "box", "expected", "runs", "needs", "pins", "results")
    jobs = table_of("Jobs (expected times from the run's start)", parts)
    for job in plan.jobs:
        what = job.program or job.command or ""
        files = f" ({job.workdir_files} files, {job.workdir_bytes:,} B)" if job.workdir else ""
        pins = job.pins or ("own" if job.requirements else "none")
        needs, results = ", ".join(job.needs), ", ".join(job.results)
        jobs.add_row(job.name, job.box, _when(job), what + files, needs, pins, results)
    for column in jobs.columns:
        column.no_wrap = column.header == "expected"
    return Group(boxes, ends, jobs, Text("\n".join(_plan_facts(plan))))


def _when(job: PlannedJob) -> str:
    if job.expected_start_hours is None or job.expected_end_hours is None:
        return ""
    return f"{_clock_of(job.expected_start_hours)}–{_clock_of(job.expected_end_hours)}"


def _clock_of(hours: Decimal) -> str:
    return str(timedelta(seconds=round(hours * 3600)))


def _plan_facts(plan: Plan) -> list[str]:
    needs = ", ".join(f"{vcpus} vCPUs of {code}" for code, vcpus in plan.quotas.items())
    fallbacks = [
        f"{box.name} may fall back to {', '.join(box.fallbacks)}: "
        "worst case and vCPUs are the dearest's and the largest's"
        for box in plan.boxes
        if box.fallbacks
    ]
    return [
        f"worst case {usd(plan.worst_case_usd)} of cap {usd(plan.cap_usd)}, "
        f"of it {usd(plan.results_usd)} for S3 and transfer; expected {usd(plan.expected_usd)}",
        *_spot(plan),
        f"prices as of {plan.prices_as_of}; deadlines as if started now; quota {needs}",
        f"at most the last {plan.loss_bound_s} s of results can be lost",
        *_pins(plan),
        *fallbacks,
        *_secrets(plan),
        *_stalls(plan),
        *_elsewhere(plan),
        *plan.warnings,
    ]


def _spot(plan: Plan) -> list[str]:
    spot = plan.spot
    if spot is None:
        return []
    if spot.expected_usd is None:
        return [f"on spot: no price on record in {plan.region} for {', '.join(spot.missing)}"]
    return [
        f"on spot: expected {usd(spot.expected_usd)} at the prices of {spot.as_of} "
        f"({spot.source}), without what an interruption repeats; the same worst case"
    ]


def _pins(plan: Plan) -> list[str]:
    """What each stack weighs; nothing of one that this version no longer has."""
    known = [(name, pin_sizes()[name]) for name in plan.pins if name in pin_sizes()]
    return [
        f"pins {name}: up to {size.download_gb} GB to download, {size.disk_gb} GB of disk"
        for name, size in known
    ]


def _secrets(plan: Plan) -> list[str]:
    """Where each is kept; of this machine's own, whether they are there."""
    parts = []
    for name, kept_at in plan.secrets.items():
        missing = "" if variable(name) else " (not set here)"
        where = f"this machine{missing}" if kept_at == "env" else kept_at
        parts.append(f"{name} from {where}")
    return [f"secrets: {', '.join(parts)}"] if parts else []


def _stalls(plan: Plan) -> list[str]:
    """Only those that a runbook gave: no other is under an hour, and no command has one."""
    given = [(job, timedelta(seconds=job.stall_s)) for job in plan.jobs if job.stall_s]
    return [
        f"job {job.name} counts as frozen after {stall} without a new step"
        for job, stall in given
        if job.command or stall < _SHORTEST_STALL
    ]


def _elsewhere(plan: Plan) -> list[str]:
    if not plan.next_regions:
        return []
    return [
        f"if {plan.region} has no room for a box, the run begins anew in "
        f"{' or '.join(plan.next_regions)}, priced there, within what is left of the cap"
    ]
