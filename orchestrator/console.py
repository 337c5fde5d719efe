"""What a person sees: tables, and progress: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.clock import SystemClock
from orchestrator.money import usd, usd_free
from orchestrator.pins import pin_sizes
from orchestrator.settings import variable
from orchestrator.typed import typed
from orchestrator.verdicts import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.bill import Bill
    from orchestrator.budgets import BudgetRow
    from orchestrator.plan import Plan, PlannedJob
    from orchestrator.progress import JobView, RunRow, Snapshot

# Columns of a table must not fold when a person pipes the output into a file.
_PLAIN_WIDTH = 118
_SHORTEST_STALL = timedelta(hours=1)
_STEP_LINES_EVERY = timedelta(seconds=10)
_STATE_STYLE = {"done": "green", "failed": "red", "cut": "red", "blocked": "red"}


class _Console(Console):
    """Names commands as they must be typed."""

    def print(self, *objects: Any, **how: Any) -> None:
        super().print(*(typed(o) if isinstance(o, str) else o for o in objects), **how)


def make_console(*, stderr: bool = False, file: IO[str] | None = None) -> Console:
    """A console whose tables keep their shape when it isn't a terminal.

    Words from jobs and AWS are shown as they are: square brackets are no markup here.
    """
    options: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}
    console = _Console(stderr=stderr, file=file, **options)
    if not console.is_terminal:
        console = _Console(stderr=stderr, file=file, width=_PLAIN_WIDTH, **options)
    return console


def clock(at: datetime) -> str:
    """`29 Nov 19:42:07` in UTC."""
    return f"{at.astimezone(UTC):%d %b %H:%M:%S}"


def plan_view(plan: Plan) -> Group:
    """Boxes with their price, their deadlines, the jobs, and the sum against the cap."""
    title = f"Plan {plan.name} · {plan.cloud} · {plan.region}"
    boxes = _table(title, ("box", "instance", "GPU", "$/h", "hours", "disk", "worst", "expected"))
    month = f"{min(box.drain_at for box in plan.boxes):%b %Y}"
    columns = ("box", "drain", "power-off", "cloud", "vCPU", "quota")
    ends = _table(f"Deadlines (day and time in UTC, {month})", columns)
    for box in plan.boxes:
        gpu = f"{box.gpus}×{box.gpu}" if box.gpus > 1 else box.gpu
        price, hours = str(box.price_usd_per_hour), f"{box.hours.normalize():f}"
        money = (usd(box.worst_case_usd), usd(box.expected_usd))
        kind = f"{box.instance} spot" if box.spot else box.instance
        boxes.add_row(box.name, kind, gpu, price, hours, f"{box.disk_gb} GB", *money)
        times = (f"{at:%d %H:%M:%S}" for at in (box.drain_at, box.poweroff_at, box.cloud_at))
        ends.add_row(box.name, *times, str(box.vcpus), box.quota_code)
    parts = ("job", "box", "expected", "runs", "needs", "pins", "results")
    jobs = _table("Jobs (expected times from the run's start)", parts)
    for job in plan.jobs:
        what = job.program or job.command or ""
        files = f" ({job.workdir_files} files, {job.workdir_bytes:,} B)" if job.workdir else ""
        pins = job.pins or ("own" if job.requirements else "none")
        needs, results = ", ".join(job.needs), ", ".join(job.results)
        jobs.add_row(job.name, job.box, _when(job), what + files, needs, pins, results)
    for column in jobs.columns:
        column.no_wrap = column.header == "expected"
    return Group(boxes, ends, jobs, Text("\n".join(_plan_facts(plan))))


def _when(job: PlannedJob) -> str:
    if job.expected_start_hours is None or job.expected_end_hours is None:
        return ""
    return f"{_clock_of(job.expected_start_hours)}–{_clock_of(job.expected_end_hours)}"


def _clock_of(hours: Decimal) -> str:
    return str(timedelta(seconds=round(hours * 3600)))


def _table(title: str, names: tuple[str, ...]) -> Table:
    """Numbers must stay whole on a narrow terminal, so no cell folds."""
    table = Table(title=title, title_justify="left", padding=(0, 1))
    for name in names:
        table.add_column(name, no_wrap=True, justify="right" if name in _NUMBERS else "left")
    return table


_NUMBERS = frozenset(
    {"$/h", "hours", "worst", "expected", "vCPU", "cost", "worst case", "USD", "reserved", "spent"}
)


def _plan_facts(plan: Plan) -> list[str]:
    needs = ", ".join(f"{vcpus} vCPUs of {code}" for code, vcpus in plan.quotas.items())
    fallbacks = [
        f"{box.name} may fall back to {', '.join(box.fallbacks)}: "
        "worst case and vCPUs are the dearest's and the largest's"
        for box in plan.boxes
        if box.fallbacks
    ]
    return [
        f"worst case {usd(plan.worst_case_usd)} of cap {usd(plan.cap_usd)}, "
        f"of it {usd(plan.results_usd)} for S3 and transfer; expected {usd(plan.expected_usd)}",
        *_spot(plan),
        f"prices as of {plan.prices_as_of}; deadlines as if started now; quota {needs}",
        f"at most the last {plan.loss_bound_s} s of results can be lost",
        *_pins(plan),
        *fallbacks,
        *_secrets(plan),
        *_stalls(plan),
        *_elsewhere(plan),
        *plan.warnings,
    ]


def _spot(plan: Plan) -> list[str]:
    spot = plan.spot
    if spot is None:
        return []
    if spot.expected_usd is None:
        return [f"on spot: no price on record in {plan.region} for {', '.join(spot.missing)}"]
    return [
        f"on spot: expected {usd(spot.expected_usd)} at the prices of {spot.as_of} "
        f"({spot.source}), without what an interruption repeats; the same worst case"
    ]


def _pins(plan: Plan) -> list[str]:
    """What each stack weighs; nothing of one that this version no longer has."""
    known = [(name, pin_sizes()[name]) for name in plan.pins if name in pin_sizes()]
    return [
        f"pins {name}: up to {size.download_gb} GB to download, {size.disk_gb} GB of disk"
        for name, size in known
    ]


def _secrets(plan: Plan) -> list[str]:
    """Where each is kept; of this machine's own, whether they are there."""
    parts = []
    for name, kept_at in plan.secrets.items():
        missing = "" if variable(name) else " (not set here)"
        where = f"this machine{missing}" if kept_at == "env" else kept_at
        parts.append(f"{name} from {where}")
    return [f"secrets: {', '.join(parts)}"] if parts else []


def _stalls(plan: Plan) -> list[str]:
    """Only those that a runbook gave: no other is under an hour, and no command has one."""
    given = [(job, timedelta(seconds=job.stall_s)) for job in plan.jobs if job.stall_s]
    return [
        f"job {job.name} counts as frozen after {stall} without a new step"
        for job, stall in given
        if job.command or stall < _SHORTEST_STALL
    ]


def _elsewhere(plan: Plan) -> list[str]:
    if not plan.next_regions:
        return []
    return [
        f"if {plan.region} has no room for a box, the run begins anew in "
        f"{' or '.join(plan.next_regions)}, priced there, within what is left of the cap"
    ]


def runs_view(rows: Sequence[RunRow]) -> Table:
    """One row a run on record."""
    table = _table("Runs", ("run", "stage", "region", "cap", "last box gone by (UTC)"))
    for row in rows:
        gone_by = clock(row.expires_at)
        table.add_row(row.run_id, row.stage, row.region, usd(row.cap_usd), gone_by)
    return table


def result_view(snapshot: Snapshot, *, references: bool = True) -> Group:
    """One row a job with its final numbers, one row a box with what it cost."""
    jobs = _table(
        f"Results of {snapshot.run_id}", ("job", "box", "state", "attempt", "step", "result")
    )
    jobs.columns[-1].no_wrap = False
    for job in snapshot.jobs:
        state = Text(job.state, _STATE_STYLE.get(job.state, ""))
        jobs.add_row(
            job.name, job.box, state, str(job.attempt), _step(job), "\n".join(job.lines())
        )
    boxes = _table("Boxes", ("box", "instance", "state", "cost", "worst case", "why"))
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
    table = _table("Beside the references", COLUMNS)
    table.columns[-1].no_wrap = False
    for row in snapshot.compared:
        style = "yellow" if row.differs else "green" if row.measured is not None else ""
        *cells, verdict, source = row.cells
        table.add_row(*cells, Text(verdict, style), source)
    return [table]


def bill_view(found: Bill) -> Group:
    """The bill's lines, and their sum against the cap."""
    table = _table("Bill", ("box", "item", "detail", "hours", "USD"))
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
        table = _table(title, ("run", "state", "reserved", "spent", "last box gone by (UTC)"))
        for run in row.runs:
            money = (usd(run.reserved_usd), usd(run.settled_usd))
            table.add_row(run.run, run.state, *money, clock(run.expires_at))
        parts.append(table if row.runs else Text(title))
    return Group(*parts or [Text(typed("No budgets. Make one: gpurun budget NAME --cap USD"))])


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
            self._live.update(result_view(snapshot, references=False))
            return
        for box in snapshot.boxes:
            reason = f" ({box.reason})" if box.reason else ""
            self._say(f"box {box.name}", f"{box.state}{reason}", "", snapshot.at)
        for job in snapshot.jobs:
            reason = f" ({job.reason})" if job.reason else ""
            step = f" step {_step(job)}" if job.step is not None else ""
            self._say(f"job {job.name}", f"{job.state}{reason}", step, snapshot.at)

        for words in snapshot.alarms:
            self._say(f"ALARM {words}", "", "", snapshot.at)

    def _say(self, name: str, state: str, step: str, at: datetime) -> None:
        said = self._said.get(name)
        soon = said is not None and at - said.at < _STEP_LINES_EVERY
        if said is None or said.state != state or (said.step != step and not soon):
            self._said[name] = _Said(state, step, at)
            self._console.print(
                f"{at:%H:%M:%S} {name}{state and ': '}{state}{step}", soft_wrap=True
            )


class _Said(NamedTuple):
    state: str
    step: str
    at: datetime


def _step(job: JobView) -> str:
    if job.step is None:
        return ""
    return f"{job.step}/{job.max_steps}" if job.max_steps else str(job.step)
