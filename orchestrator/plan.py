"""A runbook at a moment and a price: what will run where, until when, for at most how much.

`make_plan` decides and touches nothing: the clock, the prices and the AMI are passed in. What
it returns is what people confirm, what the ledger reserves and what `run.json` holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, JsonValue

from orchestrator.pins import PinSet
from orchestrator.spec import JobInput, Range

Cloud = Literal["local", "aws"]
RESULTS = "s3:results"
"""The ledger's line for S3 and transfer; no box can have this name."""


class PlanModel(BaseModel):
    """A frozen part of a plan. Keys of a later version are passed over when it is read back."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class PlannedBox(PlanModel):
    """One box with its price and its deadlines, in the order drain < power-off < cloud."""

    name: str
    instance: str
    fallbacks: tuple[str, ...]
    price_usd_per_hour: Decimal
    """Of `instance`."""
    worst_price_usd_per_hour: Decimal
    """Of the dearest of `instance` and `fallbacks`."""
    prices_usd_per_hour: Mapping[str, Decimal]
    """Of `instance` and of each fallback, by type."""
    price_source: str
    hours: Decimal
    drain_at: AwareDatetime
    poweroff_at: AwareDatetime
    cloud_at: AwareDatetime
    disk_gb: int
    worst_case_usd: Decimal
    expected_usd: Decimal
    expected_hours: Decimal
    quota_code: str
    vcpus: int
    """Of the largest of `instance` and `fallbacks`: what the quota must have room for."""
    gpu: str
    gpus: int
    gpu_memory_mib: int
    zones: Mapping[str, tuple[str, ...]]
    """Zones of the region that offer `instance` and each fallback, by type."""


class PlannedJob(PlanModel):
    """One job, with everything its box must know."""

    name: str
    box: str
    program: str | None
    command: str | None
    config: Mapping[str, JsonValue]
    needs: tuple[str, ...]
    """Includes the jobs that only `inputs` name."""
    inputs: Mapping[str, JobInput]
    pins: str | None
    """None: own requirements, or the box's own Python."""
    requirements: str | None
    """Absolute path on the planning machine."""
    requirements_sha256: str | None
    workdir: str | None
    """Absolute path on the planning machine."""
    workdir_bytes: int
    workdir_files: int
    results: tuple[str, ...]
    retries: int
    expected_hours: Decimal
    expect: Mapping[str, Range]


class Plan(PlanModel):
    """Everything that was decided before the first call."""

    name: str
    cloud: Cloud
    region: str
    cap_usd: Decimal
    worst_case_usd: Decimal
    """Sum of `reservations()`: cents, rounded up."""
    expected_usd: Decimal
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
    boxes: tuple[PlannedBox, ...]
    jobs: tuple[PlannedJob, ...]
    warnings: tuple[str, ...] = ()

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

    @property
    def ends_at(self) -> datetime:
        """When the cloud has ended the last box."""
        return max(box.cloud_at for box in self.boxes)


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
