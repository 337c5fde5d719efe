"""A runbook file to a printable plan: the part of planning that reads the clock and the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.catalog import load_catalog
from orchestrator.cautions import gpu_pins_told
from orchestrator.clock import SystemClock
from orchestrator.errors import RunbookError
from orchestrator.plan import Plan, make_plan
from orchestrator.regions import Try, plan_elsewhere
from orchestrator.runbook import load_runbook

if TYPE_CHECKING:
    from collections.abc import Sequence
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


def check_gpus(plan: Plan) -> None:
    """Raises RunbookError for a plan that the local cloud can't carry out: its boxes have none."""
    if plan.cloud != "local":
        return
    pins = {job.name: job.pins for job in plan.jobs if job.pins and plan.pins[job.pins].gpu}
    if needing := gpu_pins_told(pins):
        raise RunbookError(
            f"{needing}: this runbook can only be run with --cloud aws; nothing was created",
            hint="To rehearse here: gpurun up runbooks/rehearsal.yaml, or a copy with `pins: cpu`",
        )


def replan_runbook(
    path: Path,
    tries: Sequence[Try],
    *,
    cloud: CloudName,
    cap_usd: Decimal | None,
    allow_stale_prices: bool,
) -> Plan:
    """The same in the next region, as of now, with what is left of the cap.

    Raises:
        CapacityError: no region is left; every try is in the message.
        RunbookError: the runbook has been changed, and is wrong now.
    """
    return plan_elsewhere(
        load_runbook(path),
        tries,
        now=SystemClock().now(),
        catalog=load_catalog(),
        cloud=cloud,
        cap_usd=cap_usd,
        allow_stale_prices=allow_stale_prices,
    )
