"""Whom AWS has to allow what: for all that gpurun may do, or for one runbook only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.aws.scope import Scope
from orchestrator.catalog import load_catalog
from orchestrator.runbook import load_runbook

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.catalog import Catalog


def scope_of(account: str, runbook: Path | None = None, *, partition: str = "aws") -> Scope:
    """How far permissions go: to the types and regions of a runbook, else of the catalog.

    Raises:
        RunbookError: the runbook is wrong.
    """
    if runbook is None:
        catalog = load_catalog()
        return Scope(account, _priced(catalog), _types(catalog), partition=partition)
    wanted = load_runbook(runbook)
    boxes = wanted.boxes.values()
    types = {kind for box in boxes for kind in (box.instance, *box.fallbacks)}
    return Scope(
        account,
        tuple(wanted.regions),
        tuple(sorted(types)),
        secrets=tuple(wanted.secrets.values()),
        image=wanted.ami_parameter,
        partition=partition,
    )


def _priced(catalog: Catalog) -> tuple[str, ...]:
    """Regions with a price for a type that a runbook may name."""
    prices, names = catalog.prices.instances.usd_per_hour, set(catalog.names)
    return tuple(sorted(region for region, types in prices.items() if names & set(types)))


def _types(catalog: Catalog) -> tuple[str, ...]:
    """Whole families of those with a GPU, and by name what `kill-proof` rents."""
    families = {f"{name.partition('.')[0]}.*" for name in catalog.names}
    others = set(catalog.table.types) - set(catalog.names)
    return (*sorted(families), *sorted(others))
