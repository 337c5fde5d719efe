"""Where a runbook's boxes can be had, and at what dated prices: one region for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime

from orchestrator.catalog import (
    MAX_AGE_DAYS,
    Catalog,
    InstanceType,
    Price,
    StoragePrices,
    age_days,
)
from orchestrator.errors import CatalogError
from orchestrator.spec import RunbookSpec


@dataclass(frozen=True)
class Offer:
    """A region that offers every type a runbook may launch, with its prices."""

    region: str
    types: Mapping[str, InstanceType]
    prices: Mapping[str, Price]
    storage: StoragePrices
    passed_over: tuple[str, ...] = ()
    """Why the regions before it wouldn't do."""
    next_regions: tuple[str, ...] = ()
    """Regions after it that offer and price everything as well."""

    @property
    def as_of(self) -> date:
        """Date of the oldest price in it."""
        dates = [price.as_of for price in self.prices.values()]
        return min([*dates, self.storage.retrieved_at])


def find_offer(
    spec: RunbookSpec, catalog: Catalog, now: datetime, *, allow_stale_prices: bool
) -> Offer:
    """The first of the runbook's regions that offers and prices everything it may launch.

    Raises CatalogError when none does, or when a price is older than MAX_AGE_DAYS and stale
    prices aren't allowed.
    """
    kinds = list(
        dict.fromkeys(
            kind for box in spec.boxes.values() for kind in (box.instance, *box.fallbacks)
        )
    )
    offer = _first(spec.regions, kinds, catalog)
    age = age_days(offer.as_of, now)
    if age > MAX_AGE_DAYS and not allow_stale_prices:
        raise CatalogError(
            f"prices of {offer.as_of} are {age} days old, more than {MAX_AGE_DAYS}",
            hint="Refresh orchestrator/data/prices.json, or check the prices yourself and plan "
            "with --allow-stale-prices.",
        )
    return offer


def _first(regions: tuple[str, ...], kinds: list[str], catalog: Catalog) -> Offer:
    refused: list[CatalogError] = []
    for region in regions:
        try:
            return replace(
                _offer(region, kinds, catalog),
                passed_over=tuple(error.message for error in refused),
                next_regions=_offering(regions[regions.index(region) + 1 :], kinds, catalog),
            )
        except CatalogError as error:
            refused.append(error)
    if len(refused) == 1:
        raise refused[0]
    reasons = "; ".join(error.message for error in refused)
    raise CatalogError(f"no region of the runbook will do: {reasons}", hint=refused[0].hint)


def _offering(regions: tuple[str, ...], kinds: list[str], catalog: Catalog) -> tuple[str, ...]:
    found = []
    for region in regions:
        with suppress(CatalogError):
            found.append(_offer(region, kinds, catalog).region)
    return tuple(found)


def _offer(region: str, kinds: list[str], catalog: Catalog) -> Offer:
    for kind in kinds:
        catalog.zones(kind, region)
    return Offer(
        region=region,
        types={kind: catalog.instance(kind) for kind in kinds},
        prices={kind: catalog.price(kind, region) for kind in kinds},
        storage=catalog.storage(region),
    )
