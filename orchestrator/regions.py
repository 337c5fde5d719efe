"""Where to begin anew when a region has no room: the next one that fits into what is left. Pure.

What the tries before have cost is spent: the next region is planned and priced under a cap that
is smaller by that much. A region that is too dear for it is passed over, with its numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from orchestrator.catalog import Catalog
from orchestrator.errors import CapacityError, CatalogError, OverCap
from orchestrator.money import ZERO, usd
from orchestrator.plan import Plan, make_plan
from orchestrator.quote import Cloud
from orchestrator.runbook import Runbook


@dataclass(frozen=True)
class Try:
    """A region in which a run was begun in vain, and what that cost."""

    region: str
    why: str
    cost_usd: Decimal = ZERO
    run_id: str = ""


def plan_elsewhere(
    runbook: Runbook,
    tries: Sequence[Try],
    *,
    now: datetime,
    catalog: Catalog,
    cloud: Cloud,
    cap_usd: Decimal | None,
    allow_stale_prices: bool,
) -> Plan:
    """The plan in the first region that wasn't tried and fits under what is left of the cap.

    `cap_usd` stands in for the runbook's cap, as it did for the first try. Raises CapacityError,
    with every try and every region that was passed over, when there is none.
    """
    cap = runbook.cap_usd if cap_usd is None else cap_usd
    left = cap - sum((each.cost_usd for each in tries), ZERO)
    tried = {each.region for each in tries}
    passed: list[str] = []
    for region in runbook.regions:
        if region in tried:
            continue
        if left <= 0:
            passed.append(f"{region}: nothing is left of the cap of {usd(cap)}")
            continue
        try:
            return make_plan(
                runbook.model_copy(update={"regions": (region,)}),
                now=now,
                catalog=catalog,
                cloud=cloud,
                cap_usd=left,
                allow_stale_prices=allow_stale_prices,
            )
        except (OverCap, CatalogError) as error:
            passed.append(f"{region}: {error.message}")
    raise _exhausted(runbook, tries, passed)


def _exhausted(runbook: Runbook, tries: Sequence[Try], passed: Sequence[str]) -> CapacityError:
    lines = [f"  {each.region} ({usd(each.cost_usd)}): {each.why}" for each in tries]
    lines += [f"  {line}" for line in passed]
    return CapacityError(
        f"No region of {runbook.name} has room now:\n" + "\n".join(lines),
        hint="Try later, or give the runbook `fallbacks` or more `regions`.",
    )
