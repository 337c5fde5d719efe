"""The parts of a plan: its boxes with their deadlines, its jobs with all their box must know."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date
from decimal import Decimal

from pydantic import AwareDatetime, BaseModel, ConfigDict, JsonValue

from orchestrator.spec import JobInput


class PlanModel(BaseModel):
    """A frozen part of a plan. Keys of a later version are passed over when it is read back."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Range(PlanModel):
    """Where a number of a job's final metrics must lie, ends included; None is no limit."""

    min: Decimal | None = None
    max: Decimal | None = None

    def holds(self, value: float) -> bool:
        """Whether the number, as it is printed, is as expected; NaN never is, nor is a bool."""
        if isinstance(value, bool) or (isinstance(value, float) and math.isnan(value)):
            return False
        number = Decimal(str(value))
        return (self.min is None or number >= self.min) and (
            self.max is None or number <= self.max
        )


class Reference(PlanModel):
    """A number measured elsewhere, that a job's own is told beside."""

    value: Decimal
    tolerance: Decimal
    source: str


class SpotQuote(PlanModel):
    """What the same plan is expected to cost on spot boxes."""

    expected_usd: Decimal | None
    """None: `missing` says why."""
    as_of: date
    source: str
    missing: tuple[str, ...] = ()
    """Types without a price on record in the region."""


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
    """On-demand and spot instances have quotas of their own."""
    spot: bool = False
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
    stall_s: int | None = None
    """Without a new step for so long it counts as frozen; None: it is never judged."""
    expected_hours: Decimal
    expected_start_hours: Decimal | None = None
    """From the run's start, boot included, as is the end; None in a plan of an older version."""
    expected_end_hours: Decimal | None = None
    expect: Mapping[str, Range]
    reference: Mapping[str, Reference] = {}
