"""`python -m orchestrator.box --box NAME --root DIR --end-with COMMAND`, started by user data."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from pathlib import Path

from orchestrator.box.agent import Agent, Host
from orchestrator.box.deadline import Clock, lived_s
from orchestrator.box.fetch import metadata
from orchestrator.box.spec import read_spec

PRICE_TAG = "tags/instance/gpurun:price-per-hour"
ATTEMPT_TAG = "tags/instance/gpurun:attempt"


def main() -> int:
    """0 once the box has been told to power off; user data answers anything else."""
    parser = argparse.ArgumentParser(prog="orchestrator.box")
    parser.add_argument("--box", required=True)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--end-with", required=True, help="command that ends the box")
    parser.add_argument(
        "--last-sync", action="store_true", help="start nothing, commit what lies there, end"
    )
    options = parser.parse_args()
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stderr, force=True
    )
    logging.getLogger("gpurun").setLevel(logging.INFO)
    spec = read_spec(options.root / "boxes" / f"{options.box}.json")
    clock = Clock(not_before=spec.planned_at + lived_s(options.root))
    wheels = os.environ.get("GPURUN_WHEELS")
    host = Host(
        root=options.root,
        poweroff=(options.end_with,),
        wheels=Path(wheels) if wheels else None,
        instance_id=_instance_id(),
        booted_at=float(os.environ["GPURUN_BOOTED_AT"]),
        attempt=attempt_of_box(),
    )
    spec = replace(spec, price_usd_per_hour=price_of(spec.price_usd_per_hour))
    Agent(spec, host, clock).run(last_sync=options.last_sync)
    return 0


def price_of(planned: Decimal) -> Decimal:
    """What the launched type costs, as its tag says: a fallback has another price than planned."""
    try:
        price = Decimal(metadata(PRICE_TAG))
    except (OSError, InvalidOperation):
        return planned
    return price if price.is_finite() else planned


def attempt_of_box() -> int:
    """By its tag, the how many-th instance this is in its box's place; 0 when nobody says."""
    try:
        return int(metadata(ATTEMPT_TAG))
    except (OSError, ValueError):
        return 0


def _instance_id() -> str:
    try:
        return metadata("instance-id")
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
