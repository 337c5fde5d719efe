"""A run from plan to delivered results, as `up` and `resume` do it, and what is asked later."""

from __future__ import annotations

import json
import re
import shlex
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx

from orchestrator import kept, results, run
from orchestrator.aws import stack, sweep
from orchestrator.aws.boxes import find_boxes
from orchestrator.aws.tags import RUN
from orchestrator.budget_log import find_budget
from orchestrator.clock import SystemClock
from orchestrator.console import Progress, bill_view, make_console, result_view
from orchestrator.errors import (
    ApiError,
    BudgetError,
    CapacityError,
    CatalogError,
    ClockWrong,
    CloudError,
    CredentialsError,
    ExpectationMissed,
    GpurunError,
    JobsFailed,
    QuotaError,
    RunDamaged,
    RunNotFound,
    TeardownError,
)
from orchestrator.localcloud import process
from orchestrator.money import usd
from orchestrator.opened import Opened, open_cloud, open_run
from orchestrator.progress import Snapshot, run_spans
from orchestrator.reach import remote_of
from orchestrator.regions import Try
from orchestrator.report import write_report
from orchestrator.run import EventKind, check_run_id, read_ssh_secrets
from orchestrator.settings import Settings
from orchestrator.signals import sigterm_exits
from orchestrator.start import start_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

    from orchestrator.bill import Bill
    from orchestrator.plan import Plan
    from orchestrator.run import Event, RunRecord
    from orchestrator.settings import CloudName


def up(
    plan: Plan,
    console: Console,
    *,
    elsewhere: Callable[[Sequence[Try]], Plan],
    to: Path,
    budget: str | None = None,
    detach: bool = False,
    as_json: bool = False,
) -> None:
    """Begin the run and go through with it, in the next region where one has no room.

    `elsewhere` plans what comes after some tries. Raises what `begin` and `go` raise.
    """
    tries: list[Try] = []
    while True:
        try:
            opened = begin(plan, console, budget=budget)
        except (CatalogError, QuotaError) as error:
            if not tries:  # where it was planned to be, a person can do something about it
                raise
            tries.append(Try(plan.region, error.message))
        else:
            try:
                go(opened, console, to=to, detach=detach, as_json=as_json)
                return
            except (CapacityError, QuotaError) as error:
                if isinstance(error, QuotaError) and not (tries and _is_clean(opened)):
                    raise
                with _hinting(opened.record, _it_has_ended):
                    tries.append(_in_vain(opened, error))
        plan = elsewhere(tries)
        console.print(
            f"{tries[-1].region} has no room (that cost {usd(tries[-1].cost_usd)}); beginning "
            f"anew in {plan.region}: worst case {usd(plan.worst_case_usd)} of the "
            f"{usd(plan.cap_usd)} that are left",
            soft_wrap=True,
        )


def _in_vain(opened: Opened, error: GpurunError) -> Try:
    """What was launched has been ended and settled by then; what is open counts in full."""
    ledger = opened.runner().books.ledger()
    cost = ledger.settled_usd + ledger.reserved_usd
    return Try(opened.record.region, error.message, cost, opened.record.run_id)


def begin(plan: Plan, console: Console, *, budget: str | None = None) -> Opened:
    """Put the run on record; on the local cloud, start the cloud first if need be.

    Raises:
        BudgetError: there is no such budget.
        OverCap: the plan doesn't fit into what is free in it.
    """
    settings = Settings()
    processes = False
    if plan.cloud == "local":
        state = process.start(settings.home)
        processes = state.driver == "process"
        console.print(f"local cloud at {state.url}, {state.driver} boxes")
    session = open_cloud(plan.cloud, plan.region)
    shared = find_budget(session, budget) if budget else None
    bucket, record = start_run(
        session, plan, SystemClock(), boxes_are_processes=processes, budget=shared
    )
    kept.keep(settings.home, record, read_ssh_secrets(bucket, record.run_id))
    console.print(f"run {record.run_id} is on record in {bucket.name}", soft_wrap=True)
    console.print(f"image {record.plan.ami_id} ({plan.ami_parameter})", soft_wrap=True)
    return Opened(session, bucket, record)


def go(
    opened: Opened, console: Console, *, to: Path, detach: bool = False, as_json: bool = False
) -> None:
    """Drive the run to its end, then pull, report and print.

    Raises:
        JobsFailed: a job didn't finish; what it committed has been pulled.
        ExpectationMissed: all finished, but a number lies outside what the runbook expects.
        ResultsPartial: all finished, but a result was withheld, as a secret is in it.
        TeardownError: something with the run's tag is left.
    """
    with _hinting(opened.record, _not_anew):
        try:
            seen = _drive(opened, console, detach=detach)
        except QuotaError as error:  # of a launch that was undone, up may be typed again
            if not _is_clean(opened):
                error.hint = _not_anew(opened.record, error.hint)
            raise
    if seen is None:
        return
    kept.forget(Settings().home, opened.record.run_id)
    with _hinting(opened.record, _it_has_ended):
        deliver(opened, seen, console, to=to, as_json=as_json)


# What ends a command, and not the run: `up` typed again would pay for a second one.
_CUT_SHORT = (ApiError, BudgetError, ClockWrong, CloudError, CredentialsError)
_AGAIN = re.compile("type the command again", re.IGNORECASE)


@contextmanager
def _hinting(record: RunRecord, hint: Callable[[RunRecord, str], str]) -> Iterator[None]:
    """What cuts the command short says what to type of a run that is on record."""
    try:
        yield
    except _CUT_SHORT as error:
        error.hint = hint(record, error.hint)
        raise


def _not_anew(record: RunRecord, hint: str) -> str:
    run_id, by = record.run_id, record.expires_at
    again = _AGAIN.sub(f"go on with it: gpurun resume {run_id}", hint)
    return (
        f"{again}\n  `gpurun up` would begin another run: the boxes of {run_id} may run and bill, "
        f"until {by:%Y-%m-%d %H:%M:%S} UTC at the latest.\n"
        f"  go on with it: gpurun resume {run_id}\n  end it now:    gpurun down {run_id}"
    )


def _it_has_ended(record: RunRecord, hint: str) -> str:
    run_id = record.run_id
    again = _AGAIN.sub(f"finish it: gpurun resume {run_id}", hint)
    return (
        f"{again}\n  {run_id} has ended, and nothing of it bills any more; `gpurun up` would "
        f"begin another run, with a cap of its own.\n"
        f"  what it made: gpurun pull {run_id}\n  what it cost: gpurun bill {run_id}"
    )


def _drive(opened: Opened, console: Console, *, detach: bool) -> Snapshot | None:
    """To its end; None when it goes on without this command."""
    run_id = opened.record.run_id
    with Progress(console) as progress:
        runner = opened.runner(progress)
        try:
            with sigterm_exits():
                if not detach:
                    return runner.drive()
                runner.launch_all()
            console.print(_left_alone(opened.record, runner.log.read()))
            return None
        except (KeyboardInterrupt, SystemExit):
            console.print(
                f"\n{run_id} goes on without this terminal; every box powers itself off.\n"
                f"  go on watching: gpurun resume {run_id}\n  end it now:     gpurun down {run_id}"
            )
            raise


def _left_alone(record: RunRecord, events: Sequence[Event]) -> str:
    """What becomes of a run that was only to be launched."""
    if run.has(events, EventKind.TEARING_DOWN):
        return (
            f"{record.run_id} was ended while it was launched; nothing of it goes on.\n"
            f"Make sure: gpurun down {record.run_id}"
        )
    latest = max(box.poweroff_at for box in record.plan.boxes)
    return (
        f"{record.run_id} goes on by itself; every box powers itself off by "
        f"{latest:%Y-%m-%d %H:%M:%S} UTC.\nFinish it: gpurun resume {record.run_id}"
    )


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
    return found.model_copy(update={"over": found.over or _is_clean(opened)})


def _is_clean(opened: Opened) -> bool:
    """Whether nothing is left of the run; a log that can't be read doesn't say so."""
    try:
        return run.has(opened.runner().log.read(), EventKind.CLEAN)
    except (ApiError, RunDamaged):
        return False


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
        console.print(f"metered by the local cloud: ${metered['total_usd']}")


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


def check_credentials(plan: Plan) -> None:
    """Before anybody is asked for money: raises CredentialsError when AWS doesn't know us."""
    open_cloud(plan.cloud, plan.region)


def end_run(
    run_id: str, cloud: CloudName, progress: Progress, *, now: bool, why: str = ""
) -> None:
    """End a run and delete what carries its tag; without a readable record, by the tags alone.

    Boxes drain first, unless it must be `now`; the run's log then keeps `why`.

    Raises:
        RunNotFound: it's on no record, and nothing carries its tag.
        CredentialsError: none, or refused; nothing is forgotten, and the hint says what to do.
        TeardownError: something with the run's tag is left.
    """
    try:
        runner = open_run(run_id, cloud).runner(progress)
        if not now:
            runner.drain_boxes()
        elif why and not run.has(runner.log.read(), EventKind.TEARING_DOWN):
            runner.log.append(EventKind.TEARING_DOWN, SystemClock().now(), reason=why)
        runner.finish()
    except RunDamaged:
        _end_by_tags(run_id, cloud)
    except CredentialsError as error:
        error.hint = f"{error.hint}\n  {_by_hand(run_id)}"
        raise
    except ApiError:
        if not _is_off_record(run_id, cloud):  # the bucket is only slow, and jobs may still save
            raise
        _end_by_tags(run_id, cloud)
    except RunNotFound:
        if not _end_by_tags(check_run_id(run_id), cloud):
            raise
    kept.forget(Settings().home, run_id)


def _by_hand(run_id: str) -> str:
    """What somebody who has only the console can do, as far as this machine knows the run."""
    known = kept.recall(Settings().home, run_id)
    where = known[0].region if known else "each region"
    latest = f" by {known[0].expires_at:%Y-%m-%d %H:%M:%S} UTC" if known else ""
    return (
        f"Until then its boxes may run and bill; they end by themselves{latest}. By hand: EC2 "
        f"console, {where}, Instances, filter tag:{RUN}={run_id}, Terminate."
    )


def _is_off_record(run_id: str, cloud: CloudName) -> bool:
    """Whether the run's bucket, or what it held of the run, has gone meanwhile."""
    try:
        open_run(run_id, cloud)
    except RunNotFound:
        return True
    return False


def _end_by_tags(run_id: str, cloud: CloudName) -> bool:
    """Whether anything of the run was there, in any region."""
    session, now = open_cloud(cloud), SystemClock().now()
    seen = sweep.look(session)
    found = [place for place, of in seen.by_region.items() if run_id in {item.run for item in of}]
    left = [
        f"{item.kind} {item.id} {item.detail}".rstrip()
        for region in found
        for item in stack.teardown(session.in_region(region), run_id, now)
    ]
    left += [f"whatever is in {region}: {why}" for region, why in seen.unseen.items()]
    if left:
        raise TeardownError(
            f"Left behind by {run_id}: {', '.join(left)}", hint=f"Try again: gpurun down {run_id}"
        )
    return bool(found)


def ssh_box(opened: Opened, box: str, command: list[str]) -> int:
    """Run a command on a box, or open a shell; its exit status.

    Raises:
        RemoteError: the box isn't running, or can't be reached.
    """
    key = read_ssh_secrets(opened.bucket, opened.record.run_id).user_private
    remote = remote_of(opened.session, opened.record, key, box)
    if not command:
        return remote.shell()
    piped = None if sys.stdin.isatty() else sys.stdin
    answer = remote.run(command[0] if len(command) == 1 else shlex.join(command), stdin=piped)
    sys.stdout.write(answer.stdout)
    sys.stderr.write(answer.stderr)
    return answer.exited
