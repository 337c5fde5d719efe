"""`gpurun`: parse, call, print. A command imports what is slow to import only when it needs it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.aws import aws_app
from orchestrator.cli.budget import show_budget
from orchestrator.cli.cloud import cloud_app
from orchestrator.cli.consent import at_most, confirm, require_terminal
from orchestrator.cli.options import (
    Budget,
    Cap,
    Cloud,
    EndExpired,
    Json,
    Now,
    OnCloud,
    Run,
    Runbook,
    Stale,
    To,
)
from orchestrator.cli.proof import kill_proof
from orchestrator.errors import GpurunError
from orchestrator.typed import typed

if TYPE_CHECKING:
    from orchestrator.opened import Opened

app = typer.Typer(
    name="gpurun",
    help="GPU experiments that never cost more than you said and never lose what they made.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(cloud_app, name="cloud")
app.command("kill-proof")(kill_proof)
app.command("budget")(show_budget)
app.add_typer(aws_app, name="aws")


@app.command()
def plan(
    runbook: Runbook,
    cloud: OnCloud = Cloud.LOCAL,
    cap: Cap = None,
    as_json: Json = False,
    stale: Stale = False,
) -> None:
    """Price a runbook: boxes, deadlines, worst case against the cap. Creates nothing."""
    from orchestrator.planning import plan_runbook  # noqa: PLC0415

    found = plan_runbook(runbook, cloud=cloud.value, cap_usd=cap, allow_stale_prices=stale)
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return
    from orchestrator.console.plan import plan_view  # noqa: PLC0415
    from orchestrator.console.terminal import make_console  # noqa: PLC0415

    make_console().print(plan_view(found))


@app.command()
def up(
    runbook: Runbook,
    cloud: OnCloud = Cloud.LOCAL,
    cap: Cap = None,
    budget: Budget = None,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask before spending.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once every box is launched and armed.")
    ] = False,
    to: To = Path("results"),
    as_json: Json = False,
    stale: Stale = False,
) -> None:
    """Plan, reserve, launch, watch, tear down, pull and report."""
    from orchestrator.console.plan import plan_view  # noqa: PLC0415
    from orchestrator.console.terminal import make_console  # noqa: PLC0415
    from orchestrator.planning import check_gpus, plan_runbook, replan_runbook  # noqa: PLC0415

    how: Any = {"cloud": cloud.value, "cap_usd": cap, "allow_stale_prices": stale}
    found = plan_runbook(runbook, **how)
    check_gpus(found)
    console = make_console(stderr=as_json)
    console.print(plan_view(found))
    from orchestrator import journey  # noqa: PLC0415  # after the plan, which may be refused

    if cloud is Cloud.AWS and not yes:
        require_terminal(at_most(found))
        journey.check_credentials(found)
        confirm(at_most(found))
    journey.up(
        found,
        console,
        elsewhere=lambda tries: replan_runbook(runbook, tries, **how),
        budget=budget,
        to=to,
        detach=detach,
        as_json=as_json,
    )


@app.command()
def resume(
    run: Run, cloud: OnCloud = Cloud.LOCAL, to: To = Path("results"), as_json: Json = False
) -> None:
    """Go on with a run from wherever it stands, on any machine."""
    from orchestrator import journey  # noqa: PLC0415
    from orchestrator.console.terminal import make_console  # noqa: PLC0415

    journey.go(_open(run, cloud), make_console(stderr=as_json), to=to, as_json=as_json)


@app.command()
def status(
    run: Annotated[str | None, typer.Argument(help="A run id; all runs without it.")] = None,
    cloud: OnCloud = Cloud.LOCAL,
    as_json: Json = False,
) -> None:
    """Where a run stands, or which runs there are."""
    from orchestrator.console.terminal import make_console  # noqa: PLC0415
    from orchestrator.console.views import result_view, runs_view  # noqa: PLC0415

    if run is None:
        from orchestrator.opened import list_runs  # noqa: PLC0415

        rows = list(list_runs(cloud.value))
        if as_json:
            typer.echo(json.dumps([row.model_dump(mode="json") for row in rows]))
        else:
            make_console().print(runs_view(rows))
        return
    seen = _open(run, cloud).runner().look()
    if as_json:
        typer.echo(seen.model_dump_json(indent=1))
    else:
        make_console().print(f"{seen.run_id}: {seen.headline}", result_view(seen), sep="\n")


@app.command()
def logs(
    run: Run,
    job: Annotated[
        str | None, typer.Argument(help="A job; the boxes' consoles without it.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it ends.")] = False,
    cloud: OnCloud = Cloud.LOCAL,
) -> None:
    """A job's log, or the boxes' consoles, as committed to the bucket."""
    from orchestrator.logs import read_logs  # noqa: PLC0415

    opened = _open(run, cloud)
    jobs = [planned.name for planned in opened.record.plan.jobs]
    if job is not None and job not in jobs:
        raise typer.BadParameter(f"this run has no job {job!r}; its jobs: {', '.join(jobs)}")
    for text in read_logs(opened, job, follow=follow):
        typer.echo(text, nl=False)


@app.command()
def pull(
    run: Run, cloud: OnCloud = Cloud.LOCAL, to: To = Path("results"), as_json: Json = False
) -> None:
    """Download and verify every committed byte; the exit code tells complete from partial."""
    from orchestrator.delivery import pull_run  # noqa: PLC0415

    found = pull_run(_open(run, cloud), to)
    typer.echo(found.model_dump_json(indent=1) if as_json else found.words())
    found.raise_unless_complete()


@app.command()
def report(
    run: Run,
    cloud: OnCloud = Cloud.LOCAL,
    to: To = Path("results"),
    table: Annotated[
        bool,
        typer.Option("--table", help="Print measured beside reference as Markdown; no page."),
    ] = False,
) -> None:
    """Write the run's report page and print its path."""
    from orchestrator.report import reference_table, write_report  # noqa: PLC0415

    opened = _open(run, cloud)
    typer.echo(reference_table(opened) if table else write_report(opened, to))


@app.command()
def bill(run: Run, cloud: OnCloud = Cloud.LOCAL, as_json: Json = False) -> None:
    """What the run has cost, against its cap; on the local cloud also what the cloud metered."""
    from orchestrator.billing import print_bill  # noqa: PLC0415

    print_bill(_open(run, cloud), as_json=as_json)


@app.command()
def down(run: Run, cloud: OnCloud = Cloud.LOCAL, now: Now = None) -> None:
    """End the run and delete everything with its tag; jobs save first, the results stay."""
    from orchestrator.console.live import Progress  # noqa: PLC0415
    from orchestrator.console.terminal import make_console  # noqa: PLC0415
    from orchestrator.ending import end_run  # noqa: PLC0415

    with Progress(make_console()) as progress:
        end_run(run, cloud.value, progress, now=now is not None, why=now or "")
    typer.echo(typed(f"{run} is down; nothing with its tag is left. Results: gpurun pull {run}"))


@app.command()
def sweep(
    cloud: OnCloud = Cloud.LOCAL,
    yes: EndExpired = False,
    as_json: Json = False,
) -> None:
    """List what carries our tag, in all regions, with its price; --yes ends what is over."""
    from orchestrator.sweeping import sweep_all  # noqa: PLC0415

    sweep_all(cloud.value, yes=yes, as_json=as_json)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def ssh(context: typer.Context, run: Run, box: str, cloud: OnCloud = Cloud.LOCAL) -> None:
    """A shell on a box, or `-- COMMAND` to run one; checks the host key made for this run."""
    from orchestrator.reach import ssh_box  # noqa: PLC0415

    raise typer.Exit(ssh_box(_open(run, cloud), box, context.args))


@app.command()
def rescue(
    run: Run,
    box: Annotated[str, typer.Argument(help="A box of the run that is running.")],
    cloud: OnCloud = Cloud.LOCAL,
    to: To = Path("results"),
    as_json: Json = False,
) -> None:
    """Fetch a box's results over SSH, verified, when S3 can't be reached."""
    from orchestrator.rescuing import rescue_box  # noqa: PLC0415

    found = rescue_box(run, box, cloud.value, to)
    typer.echo(found.model_dump_json(indent=1) if as_json else found.words())
    found.raise_unless_complete()


def main() -> None:
    """Entry point: errors become a message and their exit code."""
    try:
        app()
    except GpurunError as error:
        typer.echo(f"gpurun: {typed(str(error))}", err=True)
        sys.exit(error.exit_code)


def _open(run: str, cloud: Cloud) -> Opened:
    from orchestrator.opened import open_run  # noqa: PLC0415

    return open_run(run, cloud.value)
