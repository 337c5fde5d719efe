"""What stands in the account and what it costs by the hour, from tags and the price list. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from orchestrator.errors import CatalogError
from orchestrator.money import HOURS_PER_MONTH

if TYPE_CHECKING:
    from orchestrator.aws.leftover import Leftover
    from orchestrator.catalog import Catalog


@dataclass(frozen=True)
class Standing:
    """One thing, where it is, and its price."""

    item: Leftover
    region: str
    usd_per_hour: Decimal | None
    """None when nobody knows."""


def standing(by_region: Mapping[str, Iterable[Leftover]], catalog: Catalog) -> list[Standing]:
    """Everything with its price, run by run, the dear things of each first."""
    found = [
        Standing(item, region, usd_per_hour(item, region, catalog))
        for region, items in by_region.items()
        for item in items
    ]
    return sorted(found, key=_order)


def usd_per_hour(item: Leftover, region: str, catalog: Catalog) -> Decimal | None:
    """Compute at the price it was launched at, disk and address at the region's list price."""
    bills = item.bills
    if bills is None:
        return None
    if bills == type(bills)():
        return Decimal(0)
    try:
        rates = catalog.storage(region)
        compute = bills.price_usd_per_hour or (
            catalog.price(bills.instance_type, region).usd_per_hour
            if bills.instance_type
            else Decimal(0)
        )
    except CatalogError:
        return None
    disk = bills.disk_gb * rates.gp3_gb_month / HOURS_PER_MONTH
    return compute + disk + bills.addresses * rates.ipv4_hour


def total_usd(found: Iterable[Standing]) -> tuple[Decimal, bool]:
    """The sum of what is known, and whether that is all."""
    prices = [each.usd_per_hour for each in found]
    known = [price for price in prices if price is not None]
    return sum(known, Decimal(0)), len(known) == len(prices)


def _order(each: Standing) -> tuple[str, Decimal, str, str]:
    price = Decimal("Infinity") if each.usd_per_hour is None else each.usd_per_hour
    return each.item.run, -price, each.item.kind, each.item.id
