"""A runbook at a moment and a price: what will run where, until when, for at most how much.

`make_plan` decides and touches nothing: the clock, the prices and the AMI are passed in. What
it returns is what people confirm, what the ledger reserves and what `run.json` holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Protocol

from pydantic import AwareDatetime

from orchestrator.allotment import boxes_of, jobs_of, spot_of
from orchestrator.catalog import Catalog
from orchestrator.cautions import cautions_of
from orchestrator.errors import OverCap, RunbookError
from orchestrator.money import usd
from orchestrator.offer import find_offer
from orchestrator.pins import PinSet, room_gb
from orchestrator.planned import PlanModel, PlannedBox, PlannedJob, Range, Reference, SpotQuote
from orchestrator.quote import Cloud, expected_results_usd, worst_results_usd
from orchestrator.runbook import Runbook
from orchestrator.schedule import expected_lives

__all__ = [
    "RESULTS",
    "Plan",
    "PlannedBox",
    "PlannedJob",
    "Range",
    "Reference",
    "make_plan",
    "replan_deadlines",
]

RESULTS = "s3:results"
"""The ledger's line for S3 and transfer; no box can have this name."""


class AmiFacts(Protocol):
    """What planning needs to know of an image."""

    @property
    def id(self) -> str: ...

    @property
    def snapshot_gb(self) -> int: ...


class Plan(PlanModel):
    """Everything that was decided before the first call."""

    name: str
    cloud: Cloud
    region: str
    cap_usd: Decimal
    worst_case_usd: Decimal
    """Sum of `reservations()`: cents, rounded up."""
    expected_usd: Decimal
    spot: SpotQuote | None = None
    results_usd: Decimal
    """Allowance for S3 and one pull, part of the worst case."""
    results_gb: Decimal
    planned_at: AwareDatetime
    loss_bound_s: int
    prices_as_of: date
    """Date of the oldest price used."""
    ami_parameter: str
    ami_id: str | None
    pins: Mapping[str, PinSet]
    secrets: Mapping[str, str] = {}
    """Where each of the jobs' secret variables is kept; never what it holds."""
    boxes: tuple[PlannedBox, ...]
    jobs: tuple[PlannedJob, ...]
    warnings: tuple[str, ...] = ()
    next_regions: tuple[str, ...] = ()
    """Where the run may go, each priced anew, should `region` have no room for a box."""

    def box(self, name: str) -> PlannedBox:
        """Raises KeyError."""
        return {box.name: box for box in self.boxes}[name]

    def job(self, name: str) -> PlannedJob:
        """Raises KeyError."""
        return {job.name: job for job in self.jobs}[name]

    def jobs_of(self, box: str) -> tuple[PlannedJob, ...]:
        return tuple(job for job in self.jobs if job.box == box)

    def reservations(self) -> dict[str, Decimal]:
        """What to reserve before the first call: each box by its name, and `RESULTS`."""
        boxes = {box.name: box.worst_case_usd for box in self.boxes}
        return {**boxes, RESULTS: self.results_usd}

    @property
    def quotas(self) -> dict[str, int]:
        """vCPUs needed at once, by quota code."""
        needed: dict[str, int] = {}
        for box in self.boxes:
            needed[box.quota_code] = needed.get(box.quota_code, 0) + box.vcpus
        return needed


def make_plan(
    runbook: Runbook,
    *,
    now: datetime,
    catalog: Catalog,
    cloud: Cloud,
    cap_usd: Decimal | None = None,
    allow_stale_prices: bool = False,
    ami: AmiFacts | None = None,
) -> Plan:
    """The plan of a runbook that starts at `now` (aware).

    `cap_usd` stands in for the runbook's cap. Raises OverCap when the worst case doesn't fit
    under it, CatalogError for a region without the type or its price and for stale prices,
    RunbookError for a cap that is no amount or a disk smaller than the AMI's.
    """
    cap = runbook.cap_usd if cap_usd is None else _checked_cap(cap_usd)
    start = now.astimezone(UTC).replace(microsecond=0)
    offer = find_offer(runbook, catalog, start, allow_stale_prices=allow_stale_prices)
    _check_disks(runbook, ami)
    boxes = boxes_of(runbook, offer, start, cloud)
    results = worst_results_usd(runbook, offer.storage, cloud)
    lives = expected_lives(runbook, cloud)
    expected = expected_results_usd(runbook, offer.storage, lives)
    plan = Plan(
        name=runbook.name,
        cloud=cloud,
        region=offer.region,
        cap_usd=cap,
        worst_case_usd=sum((box.worst_case_usd for box in boxes), results),
        expected_usd=sum((box.expected_usd for box in boxes), expected),
        spot=spot_of(runbook, offer, catalog, lives, expected),
        results_usd=results,
        results_gb=runbook.results_gb,
        planned_at=start,
        loss_bound_s=int(runbook.loss_bound.total_seconds()),
        prices_as_of=offer.as_of,
        ami_parameter=runbook.ami_parameter,
        ami_id=ami.id if ami else None,
        pins=runbook.sources.pins,
        secrets=dict(runbook.secrets),
        boxes=boxes,
        jobs=jobs_of(runbook, cloud),
        warnings=tuple(cautions_of(runbook, offer, cloud, start)),
        next_regions=offer.next_regions,
    )
    _check_cap(plan)
    return plan


def _checked_cap(cap: Decimal) -> Decimal:
    if not cap.is_finite() or cap <= 0:
        raise RunbookError(
            f"a cap of {cap} USD pays for nothing", hint="Give the most the run may cost: --cap 40"
        )
    return cap


def _check_disks(runbook: Runbook, ami: AmiFacts | None) -> None:
    """A disk must have room for the image and for the jobs' pins before anything is made."""
    for name, box in runbook.boxes.items():
        if ami is None or box.disk_gb >= (need := _room_gb(runbook, name, ami)):
            continue
        pins = need - ami.snapshot_gb
        raise RunbookError(
            f"boxes.{name}.disk_gb: {box.disk_gb} GB is less than the {ami.snapshot_gb} GB of "
            f"{ami.id} and the {pins} GB that its jobs' pins take",
            hint=f"Set disk_gb to at least {need}, and to more for models and checkpoints.",
        )


def _room_gb(runbook: Runbook, box: str, ami: AmiFacts) -> int:
    """Models and checkpoints come on top: how large they are only the jobs know."""
    mine = [runbook.pins_of(job) for job in runbook.jobs.values() if job.box == box]
    return ami.snapshot_gb + math.ceil(room_gb(name for name in mine if name))


def _check_cap(plan: Plan) -> None:
    if plan.worst_case_usd <= plan.cap_usd:
        return
    parts = [f"{line} {usd(amount)}" for line, amount in plan.reservations().items()]
    raise OverCap(
        f"the worst case, {usd(plan.worst_case_usd)}, is over the cap of {usd(plan.cap_usd)}; "
        f"nothing was created ({', '.join(parts)})",
        hint=f"Raise it with --cap {plan.worst_case_usd}, or give the boxes fewer hours.",
    )


def replan_deadlines(plan: Plan, now: datetime) -> Plan:
    """The same plan started at `now`; prices, money and the gaps between deadlines stay."""
    start = now.replace(microsecond=0)
    shift = start - plan.planned_at
    boxes = tuple(_shifted(box, shift) for box in plan.boxes)
    return plan.model_copy(update={"planned_at": start, "boxes": boxes})


def _shifted(box: PlannedBox, shift: timedelta) -> PlannedBox:
    return box.model_copy(
        update={
            "drain_at": box.drain_at + shift,
            "poweroff_at": box.poweroff_at + shift,
            "cloud_at": box.cloud_at + shift,
        }
    )
