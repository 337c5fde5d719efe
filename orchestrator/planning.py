"""A runbook file to a printable plan: the part of planning that reads the clock and the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.catalog import load_catalog
from orchestrator.clock import SystemClock
from orchestrator.plan import Plan, make_plan
from orchestrator.runbook import load_runbook

if TYPE_CHECKING:
    from decimal import Decimal
    from pathlib import Path

    from orchestrator.settings import CloudName


def plan_runbook(
    path: Path, *, cloud: CloudName, cap_usd: Decimal | None, allow_stale_prices: bool
) -> Plan:
    """Load, check and price a runbook as if it started now; calls no cloud.

    Raises:
        RunbookError: the runbook is wrong; every fault is listed with its line.
        OverCap: the worst case doesn't fit.
        CatalogError: no price, a stale one, or the region lacks the instance.
    """
    return make_plan(
        load_runbook(path),
        now=SystemClock().now(),
        catalog=load_catalog(),
        cloud=cloud,
        cap_usd=cap_usd,
        allow_stale_prices=allow_stale_prices,
    )
