"""What a run has made, pulled, verified, reported and printed; and what went wrong, raised."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from orchestrator import results, run
from orchestrator.billing import run_bill
from orchestrator.console.terminal import make_console
from orchestrator.console.views import bill_view, result_view
from orchestrator.errors import ApiError, ExpectationMissed, JobsFailed, RunDamaged
from orchestrator.report import write_report
from orchestrator.run import EventKind

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from orchestrator.opened import Opened
    from orchestrator.snapshot import Snapshot


def deliver(opened: Opened, seen: Snapshot, console: Console, *, to: Path, as_json: bool) -> None:
    """Pull and verify, write the report, print results and bill, raise what went wrong."""
    found = pull_run(opened, to)
    page = write_report(opened, to, seen=seen)
    console.print(result_view(seen), bill_view(run_bill(opened)), sep="\n")
    console.print(f"results {found.words()}\nreport  {page}", soft_wrap=True)
    if as_json:
        print_json = seen.model_dump(mode="json") | {
            "results": str(found.folder),
            "report": str(page),
        }
        make_console().print_json(json.dumps(print_json))
    if seen.failed:
        names = ", ".join(f"{job.name} ({job.state})" for job in seen.failed)
        raise JobsFailed(
            f"Not every job finished: {names}.",
            hint=f"Read why: gpurun logs {opened.record.run_id}"
            + (f" {seen.failed[0].name}" if seen.failed[0].step is not None else ""),
        )
    if seen.missed:
        raise ExpectationMissed("Not as the runbook expects: " + "; ".join(seen.missed))
    found.raise_if_withheld()


def pull_run(opened: Opened, to: Path) -> results.PullReport:
    """Every committed byte of the run under `to/<run id>/`, verified."""
    names = [job.name for job in opened.record.plan.jobs]
    found = results.pull(opened.bucket, opened.record.run_id, to, names)
    return found.model_copy(update={"over": found.over or is_clean(opened)})


def is_clean(opened: Opened) -> bool:
    """Whether nothing is left of the run; a log that can't be read doesn't say so."""
    try:
        return run.has(opened.runner().log.read(), EventKind.CLEAN)
    except (ApiError, RunDamaged):
        return False
