"""What a person sees: tables, and progress: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.bill import Bill
    from orchestrator.plan import Plan
    from orchestrator.progress import JobView, Snapshot
    from orchestrator.run import RunRecord

# Columns of a table must not fold when a person pipes the output into a file.
_PLAIN_WIDTH = 118
_STEP_LINES_EVERY = timedelta(seconds=10)
_STATE_STYLE = {"done": "green", "failed": "red", "cut": "red", "blocked": "red"}


def make_console(*, stderr: bool = False, file: IO[str] | None = None) -> Console:
    """A console whose tables keep their shape when it isn't a terminal.

    Words from jobs and AWS are shown as they are: square brackets are no markup here.
    """
    options: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}
    console = Console(stderr=stderr, file=file, **options)
    if not console.is_terminal:
        console = Console(stderr=stderr, file=file, width=_PLAIN_WIDTH, **options)
    return console


def usd(amount: Decimal) -> str:
    """Dollars to the cent, rounded up; amounts under ten cents keep four digits."""
    step = Decimal("0.01") if amount >= Decimal("0.1") else Decimal("0.0001")
    return f"${amount.quantize(step, ROUND_CEILING)}"


def clock(at: datetime) -> str:
    """`29 Nov 19:42:07` in UTC."""
    return f"{at.astimezone(UTC):%d %b %H:%M:%S}"


def plan_view(plan: Plan) -> Group:
    """Boxes with price and deadlines, jobs, and the sum against the cap."""
    boxes = Table(title=f"Plan {plan.name} · {plan.cloud} · {plan.region}", title_justify="left")
    names = (
        "box",
        "instance",
        "GPU",
        "vCPU",
        "$/h",
        "hours",
        "drain",
        "power-off",
        "cloud",
        "disk",
    )
    for name in names:
        boxes.add_column(name, no_wrap=True)
    boxes.add_column("worst", justify="right")
    boxes.add_column("expected", justify="right")
    for box in plan.boxes:
        gpu = f"{box.gpus}×{box.gpu}" if box.gpus > 1 else box.gpu
        times = (clock(at)[-8:] for at in (box.drain_at, box.poweroff_at, box.cloud_at))
        boxes.add_row(
            box.name,
            box.instance,
            gpu,
            str(box.vcpus),
            str(box.price_usd_per_hour),
            f"{box.hours.normalize():f}",
            *times,
            f"{box.disk_gb} GB",
            usd(box.worst_case_usd),
            usd(box.expected_usd),
        )
    jobs = Table(title="Jobs", title_justify="left")
    for name in ("job", "box", "runs", "needs", "pins", "results"):
        jobs.add_column(name)
    for job in plan.jobs:
        what = job.program or job.command or ""
        size = f" ({job.workdir_bytes:,} B)" if job.workdir_bytes else ""
        jobs.add_row(
            job.name,
            job.box,
            what + size,
            ", ".join(job.needs),
            job.pins or "own",
            ", ".join(job.results),
        )
    return Group(boxes, jobs, Text("\n".join(_plan_facts(plan))))


def _plan_facts(plan: Plan) -> list[str]:
    needs = ", ".join(f"{vcpus} vCPUs of {code}" for code, vcpus in plan.quotas.items())
    day = f"{min(box.drain_at for box in plan.boxes):%d %b %Y}"
    return [
        f"worst case {usd(plan.worst_case_usd)} of cap {usd(plan.cap_usd)}, "
        f"of it {usd(plan.results_usd)} for S3 and transfer; "
        f"expected {usd(plan.expected_usd)}; prices as of {plan.prices_as_of}",
        f"deadlines are UTC, from {day}, as if started now; quota {needs}",
        f"at most the last {plan.loss_bound_s} s of results can be lost",
        *plan.warnings,
    ]


def runs_view(records: Sequence[RunRecord]) -> Table:
    """One row a run on record."""
    table = Table(title="Runs", title_justify="left")
    for name in ("run", "region", "boxes", "jobs", "cap", "last box gone by (UTC)"):
        table.add_column(name)
    for record in records:
        plan = record.plan
        counts = (str(len(plan.boxes)), str(len(plan.jobs)))
        table.add_row(
            record.run_id, plan.region, *counts, usd(plan.cap_usd), clock(record.expires_at)
        )
    return table


def result_view(snapshot: Snapshot) -> Group:
    """One row a job with its final numbers, one row a box with what it cost."""
    jobs = Table(title=f"Results of {snapshot.run_id}", title_justify="left")
    for name in ("job", "box", "state", "attempt", "step", "result"):
        jobs.add_column(name, no_wrap=name != "result")
    for job in snapshot.jobs:
        state = Text(job.state, _STATE_STYLE.get(job.state, ""))
        jobs.add_row(
            job.name, job.box, state, str(job.attempt), _step(job), "\n".join(job.lines())
        )
    boxes = Table(title="Boxes", title_justify="left")
    for name in ("box", "instance", "state", "why", "cost", "worst case"):
        boxes.add_column(name)
    for box in snapshot.boxes:
        boxes.add_row(
            box.name,
            box.instance,
            box.state,
            box.reason,
            usd(box.usd),
            usd(box.worst_case_usd),
        )
    return Group(jobs, boxes)


def bill_view(found: Bill) -> Group:
    """The bill's lines, and their sum against the cap."""
    table = Table(title="Bill", title_justify="left")
    for name in ("box", "item", "detail"):
        table.add_column(name)
    table.add_column("hours", justify="right")
    table.add_column("USD", justify="right")
    for line in found.lines:
        hours = f"{line.hours.quantize(Decimal('0.0001')):f}"
        table.add_row(line.box, line.kind, line.detail, hours, f"{line.usd:f}")
    total = (
        f"total {usd(found.total_usd)}, reserved {usd(found.worst_case_usd)}, "
        f"cap {usd(found.cap_usd)} (S3 and transfer are reserved, but not metered here)"
    )
    return Group(table, Text(total))


class Progress:
    """Shows a run's snapshots: one live table on a terminal, changed lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4) if console.is_terminal else None
        self._said: dict[str, _Said] = {}
        self._step = ""

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def step(self, words: str) -> None:
        """A step of the controller's own work; said again only when it is another."""
        if words == self._step:
            return
        self._step = words
        self._console.print(f"{SystemClock().now():%H:%M:%S} {words}", soft_wrap=True)

    def show(self, snapshot: Snapshot) -> None:
        """The newest snapshot; a line is printed when a state changes, or a step now and then."""
        if self._live:
            self._live.update(result_view(snapshot))
            return
        for box in snapshot.boxes:
            reason = f" ({box.reason})" if box.reason else ""
            self._say(f"box {box.name}", f"{box.state}{reason}", "", snapshot.at)
        for job in snapshot.jobs:
            reason = f" ({job.reason})" if job.reason else ""
            step = f" step {_step(job)}" if job.step is not None else ""
            self._say(f"job {job.name}", f"{job.state}{reason}", step, snapshot.at)

    def _say(self, name: str, state: str, step: str, at: datetime) -> None:
        said = self._said.get(name)
        soon = said is not None and at - said.at < _STEP_LINES_EVERY
        if said is None or said.state != state or (said.step != step and not soon):
            self._said[name] = _Said(state, step, at)
            self._console.print(f"{at:%H:%M:%S} {name}: {state}{step}", soft_wrap=True)


class _Said(NamedTuple):
    state: str
    step: str
    at: datetime


def _step(job: JobView) -> str:
    if job.step is None:
        return ""
    return f"{job.step}/{job.max_steps}" if job.max_steps else str(job.step)
