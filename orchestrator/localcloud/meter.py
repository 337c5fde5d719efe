"""The cloud's own bill, per second, kept from what it ran and stored, not from what it was told.

Compute and the public address bill from the launch until `shutting-down`, 60 s at least; a
volume until it is deleted (EC2 pricing page and User Guide, "Instance lifecycle"). Prices are the
catalog's; `launched` raises CatalogError for an instance that it can't price.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import ROUND_CEILING, Decimal
from enum import StrEnum

from orchestrator.catalog import Catalog

_MICRO_USD = Decimal("0.000001")
_HOURS_PER_MONTH = Decimal(730)
_GB = Decimal(10**9)
MINIMUM_S = 60


class Kind(StrEnum):
    COMPUTE = "compute"
    EBS = "ebs"
    IPV4 = "ipv4"
    S3 = "s3"
    TRANSFER = "transfer"


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Something that bills by time, for one instance."""

    kind: Kind
    instance_id: str
    run: str
    box: str
    usd_per_hour: Decimal
    since: datetime
    until: datetime | None = None

    def hours(self, now: datetime) -> Decimal:
        seconds = Decimal(int(((self.until or now) - self.since).total_seconds()))
        if self.kind is Kind.EBS:
            return seconds / 3600
        return max(Decimal(MINIMUM_S), seconds) / 3600


@dataclass(frozen=True, kw_only=True)
class Stored:
    """An object in S3, or what is left of a version of it."""

    run: str
    size_bytes: int
    since: datetime


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What the meter must know of an instance at its start."""

    instance_id: str
    instance_type: str
    region: str
    run: str
    box: str
    disk_gb: int
    has_public_ip: bool


class Meter:
    """Safe to use from several threads."""

    def __init__(self, catalog: Catalog, now: Callable[[], datetime], region: str) -> None:
        self._catalog, self._now, self._region = catalog, now, region
        self._lock = threading.Lock()
        self._usages: list[Usage] = []
        self._puts: Counter[str] = Counter()
        self._bytes_out: Counter[str] = Counter()

    def price_of(self, instance_type: str, region: str) -> Decimal:
        """USD per hour; raises CatalogError for a type or region without a price."""
        return self._catalog.price(instance_type, region).usd_per_hour

    def launched(self, launch: Launch) -> None:
        rates = self._catalog.storage(launch.region)
        per_hour = {
            Kind.COMPUTE: self.price_of(launch.instance_type, launch.region),
            Kind.EBS: launch.disk_gb * rates.gp3_gb_month / _HOURS_PER_MONTH,
        }
        if launch.has_public_ip:
            per_hour[Kind.IPV4] = rates.ipv4_hour
        with self._lock:
            self._usages += [
                Usage(
                    kind=kind,
                    instance_id=launch.instance_id,
                    run=launch.run,
                    box=launch.box,
                    usd_per_hour=usd,
                    since=self._now(),
                )
                for kind, usd in per_hour.items()
            ]

    def ended(self, instance_id: str, kinds: Iterable[Kind]) -> None:
        """The instance stopped using these; a second call changes nothing."""
        over = set(kinds)
        with self._lock:
            self._usages = [
                replace(u, until=self._now())
                if u.instance_id == instance_id and u.kind in over and u.until is None
                else u
                for u in self._usages
            ]

    def running(self) -> dict[str, int]:
        """How many boxes of each run haven't ended."""
        with self._lock:
            return Counter(
                u.run for u in self._usages if u.kind is Kind.COMPUTE and u.until is None
            )

    def s3_request(self, run: str, *, put: bool, bytes_out: int) -> None:
        """`bytes_out`: what left the region, so nothing that a box read."""
        with self._lock:
            self._puts[run] += put
            self._bytes_out[run] += bytes_out

    def bill(self, run: str | None, stored: Iterable[Stored]) -> dict[str, object]:
        """The bill of one run, or of everything, up to now; amounts are decimal text."""
        now = self._now()
        with self._lock:
            lines = [
                *(self._time_line(u, now) for u in self._usages if run in (None, u.run)),
                *self._request_lines(run),
                *self._storage_lines(run, stored, now),
            ]
        total = sum((Decimal(line["usd"]) for line in lines), Decimal(0))
        return {"total_usd": str(total), "items": lines, "metered_at": now.isoformat()}

    def _time_line(self, usage: Usage, now: datetime) -> dict[str, str]:
        hours = usage.hours(now)
        return _line(usage.kind, usage.instance_id, usage.box, hours, hours * usage.usd_per_hour)

    def _request_lines(self, run: str | None) -> Iterator[dict[str, str]]:
        rates, free = self._catalog.storage(self._region), Decimal(0)
        for name, puts in sorted(self._puts.items()):
            if run in (None, name) and puts:
                usd = puts * rates.s3_put_1000 / 1000
                yield _line(Kind.S3, f"{puts} writes", "", free, usd) | {"run": name}
        for name, out in sorted(self._bytes_out.items()):
            if run in (None, name) and out:
                usd = out / _GB * rates.transfer_out_gb
                yield _line(Kind.TRANSFER, f"{out} bytes out", "", free, usd) | {"run": name}

    def _storage_lines(
        self, run: str | None, stored: Iterable[Stored], now: datetime
    ) -> Iterator[dict[str, str]]:
        rate = self._catalog.storage(self._region).s3_gb_month / _HOURS_PER_MONTH
        gb_hours: dict[str, Decimal] = {}
        for each in stored:
            if run in (None, each.run):
                hours = Decimal(max(0, int((now - each.since).total_seconds()))) / 3600
                so_far = gb_hours.get(each.run, Decimal(0))
                gb_hours[each.run] = so_far + hours * each.size_bytes / _GB
        for name, amount in sorted(gb_hours.items()):
            yield _line(Kind.S3, "storage", "", Decimal(0), amount * rate) | {"run": name}


def _line(kind: Kind, what: str, box: str, hours: Decimal, usd: Decimal) -> dict[str, str]:
    return {
        "kind": kind.value,
        "id": what,
        "box": box,
        "hours": str(hours.quantize(_MICRO_USD, ROUND_CEILING)),
        "usd": str(usd.quantize(_MICRO_USD, ROUND_CEILING)),
    }
