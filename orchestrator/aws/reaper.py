"""The account's own sweep: a Lambda function that ends what is past its expiry in its region.

It is `gpurun sweep` on a schedule, in one region, with no laptop. What it imports goes into its
package by itself (`reaper_setup`): this project, the standard library and the boto3 that Lambda
has, nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import boto3

from orchestrator.aws.session import Session
from orchestrator.aws.sweep import Swept, sweep
from orchestrator.clock import SystemClock
from orchestrator.errors import TeardownError

# Lambda ends a call after fifteen minutes at most; what is left then is the next call's.
TIMEOUT_S = 900
_WAITS_S = 780.0

_log = logging.getLogger(__name__)


def handler(event: Mapping[str, Any], _context: object) -> dict[str, Any]:
    """End what is over in this region. `event["now"]` may set the time, never ahead.

    Raises:
        TeardownError: something didn't go, so that the function's `Errors` metric counts it.
    """
    session = _here()
    swept = sweep(session.within(_WAITS_S), _now(event), [session.region])
    problems = [*_problems(swept)]
    if swept.ended:
        _log.warning("ended %s in %s", ", ".join(swept.ended), session.region)
    boxes = [box.id for box in swept.boxes]
    if boxes:
        _log.warning("ended %s in %s, past their own expiry", ", ".join(boxes), session.region)
    if problems:
        raise TeardownError("\n".join(problems))
    return {"ended": list(swept.ended), "going_on": list(swept.going_on), "boxes": boxes}


def _here() -> Session:
    """The account and region that the function runs in."""
    boto = boto3.Session()
    identity = boto.client("sts").get_caller_identity()
    return Session(
        cloud="aws",
        region=boto.region_name or "us-east-1",
        account=identity["Account"],
        partition=identity["Arn"].split(":")[1],
        boto=boto,
    )


def _now(event: Mapping[str, Any]) -> datetime:
    """Whoever may call the function must not be able to end what isn't over."""
    clock = SystemClock().now()
    asked = event.get("now")
    return min(datetime.fromisoformat(asked), clock) if asked else clock


def _problems(swept: Swept) -> list[str]:
    return [
        *(f"left behind by {i.run}: {i.kind} {i.id}  {i.detail}" for i in swept.left if i.run),
        *(f"{run}: {why}" for run, why in swept.failed.items()),
        *(f"could not look at {name}: {why}" for name, why in swept.unseen.items()),
    ]
