"""What a run has cost so far: pure arithmetic over the times EC2 reports.

Billing model: per second, 60 s minimum, from launch until `shutting-down` (AWS's EC2 pricing
page); gp3 and the public address for the same span. Money is rounded up, never down.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.catalog import Catalog

_MICRO_USD = Decimal("0.000001")
_HOURS_PER_MONTH = Decimal(730)
_MINIMUM_S = 60


@dataclass(frozen=True)
class Span:
    """One instance's billed life. `ended_at` None means it still bills."""

    box: str
    instance_type: str
    disk_gb: int
    launched_at: datetime
    ended_at: datetime | None

    def hours(self, now: datetime) -> Decimal:
        """Billed hours up to `now`, to the second."""
        seconds = int(((self.ended_at or now) - self.launched_at).total_seconds())
        return Decimal(max(_MINIMUM_S, seconds)) / Decimal(3600)


@dataclass(frozen=True)
class BillLine:
    """One priced item of the bill."""

    box: str
    kind: str
    detail: str
    hours: Decimal
    usd: Decimal


@dataclass(frozen=True)
class Bill:
    """The run's lines, their sum and the cap they stay under."""

    lines: tuple[BillLine, ...]
    cap_usd: Decimal
    worst_case_usd: Decimal

    @property
    def total_usd(self) -> Decimal:
        return sum((line.usd for line in self.lines), Decimal(0))


def span_lines(
    span: Span, catalog: Catalog, region: str, now: datetime
) -> tuple[BillLine, BillLine, BillLine]:
    """Compute, disk and public address of one instance."""
    hours = span.hours(now)
    price = catalog.price(span.instance_type, region).usd_per_hour
    rates = catalog.storage(region)
    disk = Decimal(span.disk_gb) * rates.gp3_gb_month / _HOURS_PER_MONTH
    parts = (
        ("compute", span.instance_type, price),
        ("disk", f"{span.disk_gb} GB gp3", disk),
        ("address", "public IPv4", rates.ipv4_hour),
    )
    compute, volume, address = (
        BillLine(span.box, kind, detail, hours, _up(hours * per_hour))
        for kind, detail, per_hour in parts
    )
    return compute, volume, address


def span_usd(span: Span, catalog: Catalog, region: str, now: datetime) -> Decimal:
    """What one instance has cost up to `now`, in USD."""
    return sum((line.usd for line in span_lines(span, catalog, region, now)), Decimal(0))


def bill(
    spans: Sequence[Span],
    catalog: Catalog,
    region: str,
    *,
    cap_usd: Decimal,
    worst_case_usd: Decimal,
    now: datetime,
) -> Bill:
    """The bill of a run's instances up to `now`."""
    lines = tuple(line for span in spans for line in span_lines(span, catalog, region, now))
    return Bill(lines, cap_usd, worst_case_usd)


def _up(usd: Decimal) -> Decimal:
    return usd.quantize(_MICRO_USD, ROUND_CEILING)
