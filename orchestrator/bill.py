"""What a run has cost so far: pure arithmetic over the times EC2 reports.

Billing model: per second, 60 s minimum, from launch until `shutting-down` (AWS's EC2 pricing
page); gp3 and the public address for the same span. Money is rounded up, never down.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING

from orchestrator.money import HOURS_PER_MONTH, MICRO_USD
from orchestrator.quote import OLD_VERSION_MONTHS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.catalog import Catalog, StoragePrices

_GB = Decimal(10**9)
PART_BYTES = 8 << 20
"""The smallest part that anybody here uploads a big object in; each is a request."""
LISTS_PER_LOOK, LISTS_PER_BOX = 10, 4
"""Listings of the run's log whenever a controller looks, at most; S3 bills them as writes."""
_LIST_BYTES, _LIST_ENTRY_BYTES = 1024, 512
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
    warnings: tuple[str, ...] = ()
    """What must be said loudly: a line that cost more than was reserved for it."""

    @property
    def total_usd(self) -> Decimal:
        return sum((line.usd for line in self.lines), Decimal(0))


@dataclass(frozen=True, kw_only=True)
class S3Use:
    """What a run has left in its bucket, and what looking at it has taken."""

    stored_bytes: int
    """All versions: overwritten ones are kept, and billed, too."""
    pulled_bytes: int
    """Newest versions of the results: what one pull over the internet brings home."""
    writes: int
    """Versions, and the parts of big ones."""
    looks: int = 0
    """How often a controller looked, by time."""
    old_bytes: int = 0
    """Those of the overwritten ones, which the bucket keeps for longer than a month."""
    lists_per_look: int = LISTS_PER_LOOK
    look_bytes: int = 0
    """What leaves the region with one look: heartbeats, statuses, listings."""

    def left_usd(self, rates: StoragePrices) -> Decimal:
        """For what is there: a month of storage, longer if overwritten, the writes, one pull."""
        months = self.stored_bytes + self.old_bytes * (OLD_VERSION_MONTHS - 1)
        stored = months / _GB * rates.s3_gb_month
        pulled = self.pulled_bytes / _GB * rates.transfer_out_gb
        return _up(stored + pulled + self.writes * rates.s3_put_1000 / 1000)

    def looked_usd(self, rates: StoragePrices) -> Decimal:
        """For the looks of one controller, which leave no trace to be counted."""
        lists = self.looks * self.lists_per_look * rates.s3_put_1000 / 1000
        return _up(lists + self.looks * self.look_bytes / _GB * rates.transfer_out_gb)


def s3_usd(use: S3Use, rates: StoragePrices, reserved_usd: Decimal) -> Decimal:
    """An upper estimate; above what was reserved only when what lies there alone costs more."""
    left = use.left_usd(rates)
    return max(left, min(left + use.looked_usd(rates), reserved_usd))


def listing_bytes(lists: int, entries: int) -> int:
    """What listings bring home, the run's log having so many entries."""
    return lists * (_LIST_BYTES + entries * _LIST_ENTRY_BYTES)


def writes_of(size_bytes: int) -> int:
    """Requests that uploading one object takes: its parts, their beginning and their end."""
    parts = -(-size_bytes // PART_BYTES)
    return 1 if parts <= 1 else parts + 2


def s3_line(line: str, use: S3Use, usd: Decimal) -> BillLine:
    """The bill's line for a run's S3, at what was settled or would be now."""
    detail = (
        f"{use.stored_bytes / 10**6:.1f} MB for a month, {use.pulled_bytes / 10**6:.1f} MB pulled "
        f"once, {use.writes + use.looks * use.lists_per_look} requests; at most"
    )
    return BillLine(line, "s3", detail, Decimal(0), usd)


def span_lines(
    span: Span, catalog: Catalog, region: str, now: datetime
) -> tuple[BillLine, BillLine, BillLine]:
    """Compute, disk and public address of one instance."""
    hours = span.hours(now)
    price = catalog.price(span.instance_type, region).usd_per_hour
    rates = catalog.storage(region)
    disk = Decimal(span.disk_gb) * rates.gp3_gb_month / HOURS_PER_MONTH
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
    s3: BillLine | None = None,
    warnings: tuple[str, ...] = (),
) -> Bill:
    """The bill of a run's instances up to `now`, and of its bucket."""
    lines = [line for span in spans for line in span_lines(span, catalog, region, now)]
    lines += [s3] if s3 else []
    return Bill(tuple(lines), cap_usd, worst_case_usd, warnings)


def _up(usd: Decimal) -> Decimal:
    return usd.quantize(MICRO_USD, ROUND_CEILING)
