"""The bill of a run as it is printed, on the local cloud beside what the cloud itself metered."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import httpx

from orchestrator.aws.boxes import find_boxes
from orchestrator.clock import SystemClock
from orchestrator.console.terminal import make_console
from orchestrator.console.views import bill_view
from orchestrator.errors import CloudError
from orchestrator.localcloud import process
from orchestrator.money import ZERO
from orchestrator.progress import run_spans
from orchestrator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.bill import Bill
    from orchestrator.opened import Opened

_OF_S3 = ("s3", "transfer")


def run_bill(opened: Opened) -> Bill:
    """The run's bill from EC2's times and the log."""
    record, runner = opened.record, opened.runner()
    spans = run_spans(record, runner.log.read(), find_boxes(opened.session, record.run_id))
    return runner.purse.bill(spans, SystemClock().now())


def print_bill(opened: Opened, *, as_json: bool) -> None:
    """The bill against the cap; on the local cloud also the cloud's own meter."""
    found = run_bill(opened)
    metered = cloud_meter(opened.record.run_id) if opened.session.cloud == "local" else None
    if as_json:
        lines = [vars(line) for line in found.lines]
        shown = {
            "total_usd": found.total_usd,
            "cap_usd": found.cap_usd,
            "worst_case_usd": found.worst_case_usd,
            "lines": lines,
            "metered": metered,
        }
        make_console().print_json(json.dumps(shown, default=str))
        return
    console = make_console()
    console.print(bill_view(found))
    if metered:
        console.print(beside_meter(found, metered), soft_wrap=True)


def beside_meter(found: Bill, metered: Mapping[str, Any]) -> str:
    """What the local cloud metered, and by what the bill above differs from it."""
    items = [(item["kind"] in _OF_S3, Decimal(item["usd"])) for item in metered["items"]]
    s3 = sum((amount for of_s3, amount in items if of_s3), ZERO)
    boxes = sum((amount for of_s3, amount in items if not of_s3), ZERO)
    ours = sum((line.usd for line in found.lines if line.kind != "s3"), ZERO)
    total = f"metered by the local cloud: ${metered['total_usd']}"
    return (
        f"{total}, boxes ${boxes} and S3 ${s3} till now\n"
        f"the bill has boxes ${ours}, by the seconds that EC2 tells, and S3"
        f" ${found.total_usd - ours}, with a month of storage, one pull and the controller's looks"
    )


def cloud_meter(run_id: str) -> dict[str, Any]:
    """What the local cloud metered for a run, independent of our own books."""
    state = process.status(Settings().home)
    if state is None:
        raise CloudError("The local cloud isn't running.", hint="Start it: gpurun cloud start")
    try:
        answer = httpx.get(f"{state.url}/_gpurun/bill", params={"run": run_id}, timeout=10)
        metered: dict[str, Any] = answer.raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        raise CloudError(
            f"The local cloud at {state.url} doesn't say what it metered: {error}",
            hint="See whether it runs: gpurun cloud status",
        ) from error
    return metered
