"""A run from plan to delivered results, as `up` and `resume` do it."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orchestrator import kept, run
from orchestrator.budget_log import find_budget
from orchestrator.clock import SystemClock
from orchestrator.console.live import Progress
from orchestrator.delivery import deliver, is_clean
from orchestrator.errors import (
    ApiError,
    BudgetError,
    CapacityError,
    CatalogError,
    ClockWrong,
    CloudError,
    CredentialsError,
    GpurunError,
    QuotaError,
)
from orchestrator.localcloud import process
from orchestrator.money import usd
from orchestrator.opened import Opened, open_cloud
from orchestrator.regions import Try
from orchestrator.run import EventKind, read_ssh_secrets
from orchestrator.settings import Settings
from orchestrator.signals import sigterm_exits
from orchestrator.snapshot import Snapshot
from orchestrator.start import start_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

    from orchestrator.plan import Plan
    from orchestrator.run import Event, RunRecord


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
                if isinstance(error, QuotaError) and not (tries and is_clean(opened)):
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
            if not is_clean(opened):
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


def check_credentials(plan: Plan) -> None:
    """Before anybody is asked for money: raises CredentialsError when AWS doesn't know us."""
    open_cloud(plan.cloud, plan.region)
