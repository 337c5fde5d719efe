"""Runs, results, bills and budgets as tables."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.console.terminal import clock, table_of
from orchestrator.money import usd, usd_free
from orchestrator.typed import typed
from orchestrator.verdicts import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from orchestrator.bill import Bill
    from orchestrator.budgets import BudgetRow
    from orchestrator.snapshot import JobView, RunRow, Snapshot

_STATE_STYLE = {"done": "green", "failed": "red", "cut": "red", "blocked": "red"}


def runs_view(rows: Sequence[RunRow]) -> Table:
    """One row a run on record."""
    table = table_of("Runs", ("run", "stage", "region", "cap", "last box gone by (UTC)"))
    for row in rows:
        gone_by = clock(row.expires_at)
        table.add_row(row.run_id, row.stage, row.region, usd(row.cap_usd), gone_by)
    return table


def result_view(snapshot: Snapshot, *, references: bool = True) -> Group:
    """One row a job with its final numbers, one row a box with what it cost."""
    jobs = table_of(
        f"Results of {snapshot.run_id}", ("job", "box", "state", "attempt", "step", "result")
    )
    jobs.columns[-1].no_wrap = False
    for job in snapshot.jobs:
        state = Text(job.state, _STATE_STYLE.get(job.state, ""))
        jobs.add_row(
            job.name, job.box, state, str(job.attempt), step_of(job), "\n".join(job.lines())
        )
    boxes = table_of("Boxes", ("box", "instance", "state", "cost", "worst case", "why"))
    boxes.columns[-1].no_wrap = False
    for box in snapshot.boxes:
        boxes.add_row(
            box.name,
            box.instance,
            box.state,
            usd(box.usd),
            usd(box.worst_case_usd),
            box.reason,
        )
    return Group(
        jobs,
        *(_reference_views(snapshot) if references else ()),
        boxes,
        *(Text(f"ALARM {typed(words)}", "bold red") for words in snapshot.alarms),
    )


def _reference_views(snapshot: Snapshot) -> list[Table]:
    """One row a number that the runbook has a reference for; nothing where it has none."""
    if not snapshot.compared:
        return []
    table = table_of("Beside the references", COLUMNS)
    table.columns[-1].no_wrap = False
    for row in snapshot.compared:
        style = "yellow" if row.differs else "green" if row.measured is not None else ""
        *cells, verdict, source = row.cells
        table.add_row(*cells, Text(verdict, style), source)
    return [table]


def bill_view(found: Bill) -> Group:
    """The bill's lines, and their sum against the cap."""
    table = table_of("Bill", ("box", "item", "detail", "hours", "USD"))
    table.columns[2].no_wrap = False
    for line in found.lines:
        hours = f"{line.hours.quantize(Decimal('0.0001')):f}" if line.hours else ""
        table.add_row(line.box, line.kind, line.detail, hours, f"{line.usd:f}")
    total = (
        f"total {usd(found.total_usd)}, reserved {usd(found.worst_case_usd)}, "
        f"cap {usd(found.cap_usd)}; S3 is an upper estimate"
    )
    loud = [Text(f"WARNING: {words}", "bold red") for words in found.warnings]
    return Group(table, Text(total), *loud)


def budgets_view(rows: Sequence[BudgetRow]) -> Group:
    """Each budget's sums, then one row for each of its runs."""
    parts: list[RenderableType] = []
    for row in rows:
        title = (
            f"Budget {row.name} · {usd(row.cap_usd)} · {usd(row.reserved_usd)} reserved, "
            f"{usd(row.settled_usd)} spent, {usd_free(row.free_usd)} free · kept in {row.region}"
        )
        table = table_of(title, ("run", "state", "reserved", "spent", "last box gone by (UTC)"))
        for run in row.runs:
            money = (usd(run.reserved_usd), usd(run.settled_usd))
            table.add_row(run.run, run.state, *money, clock(run.expires_at))
        parts.append(table if row.runs else Text(title))
    return Group(*parts or [Text(typed("No budgets. Make one: gpurun budget NAME --cap USD"))])


def step_of(job: JobView) -> str:
    if job.step is None:
        return ""
    return f"{job.step}/{job.max_steps}" if job.max_steps else str(job.step)
