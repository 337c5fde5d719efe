"""`gpurun aws …`: what an AWS account has to allow before a run may spend anything there."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.options import Cloud, Json
from orchestrator.errors import NotConfirmed

if TYPE_CHECKING:
    from orchestrator.aws.scope import Scope

aws_app = typer.Typer(help="A real AWS account: what it must allow.", no_args_is_help=True)


class Whom(StrEnum):
    """Who is to be allowed something."""

    RUNNER = "runner"
    REAPER = "reaper"


@aws_app.callback()
def aws_group() -> None:
    """What holds for the whole account."""


@aws_app.command("policy")
def aws_policy(
    runbook: Annotated[
        Path | None, typer.Argument(help="Only for this runbook, with its secrets.")
    ] = None,
    whom: Annotated[
        Whom, typer.Option("--for", help="Who runs gpurun, or what only ends runs that are over.")
    ] = Whom.RUNNER,
    account: Annotated[
        str | None,
        typer.Option("--account", metavar="ID", help="Without it, AWS is asked who you are."),
    ] = None,
    part: Annotated[int | None, typer.Option("--part", help="Print only this document.")] = None,
    as_json: Json = False,
) -> None:
    """Print the least IAM policy for the person who runs gpurun; creates nothing.

    IAM takes 6,144 characters at once: it may be two documents, to be attached together.
    """
    from orchestrator.aws.policy import reaper_policy, runner_policy  # noqa: PLC0415

    scope = _scope(account, runbook)
    documents = runner_policy(scope) if whom is Whom.RUNNER else reaper_policy(scope)
    if part is not None:
        _check_part(part, len(documents))
        documents = [documents[part - 1]]
    _print_documents(documents, as_json=as_json)


@aws_app.command("setup")
def aws_setup(
    region: Annotated[
        list[str] | None,
        typer.Option("--region", help="Where runs may be; may be given again. Else: yours."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take it away again.")] = False,
    cloud: Annotated[Cloud, typer.Option("--cloud", help="aws or local.")] = Cloud.AWS,
) -> None:
    """Install the reaper: a function that ends what is over every 5 minutes, with no laptop.

    It may end only what carries a run's tag or name, in its own region. It costs a few cents a
    month and region. An administrator's credentials are needed once.
    """
    from orchestrator.aws.reaper_setup import install, uninstall  # noqa: PLC0415
    from orchestrator.opened import open_cloud  # noqa: PLC0415

    first = open_cloud(cloud.value, region[0] if region else None)
    where = sorted(set(region or [first.region]))
    if cloud is Cloud.AWS and not (yes or remove):
        _ask_for_reaper(first.account, where)
    for name in where:
        if remove:
            uninstall(first.in_region(name))
            typer.echo(f"{name}: the reaper is gone")
        else:
            changed = install(first.in_region(name))
            typer.echo(f"{name}: {'the reaper is installed' if changed else 'nothing to do'}")


def _ask_for_reaper(account: str, regions: list[str]) -> None:
    """Raises NotConfirmed when nobody is there, or the answer isn't yes."""
    if not sys.stdin.isatty():
        raise NotConfirmed(
            "This installs something that costs a few cents a month, and nobody is there to ask.",
            hint="Agree beforehand with --yes.",
        )
    typer.echo(
        f"In account {account}, {', '.join(regions)}: a Lambda function called every 5 minutes "
        "(8,640 times a month, some seconds of 256 MB each: a few cents a month and region, less "
        "within the free tier), two roles, a log that is kept for 14 days, and a schedule."
    )
    typer.confirm("Install it?", abort=True)


def _scope(account: str | None, runbook: Path | None) -> Scope:
    from orchestrator.permissions import scope_of  # noqa: PLC0415

    if account is not None:
        if not (account.isdigit() and account.isascii() and len(account) == 12):
            raise typer.BadParameter(f"an account has 12 digits, not {account!r}")
        return scope_of(account, runbook)
    from orchestrator.opened import open_cloud  # noqa: PLC0415

    session = open_cloud("aws")
    return scope_of(session.account, runbook, partition=session.partition)


def _check_part(part: int, parts: int) -> None:
    if not 1 <= part <= parts:
        raise typer.BadParameter(f"there are {parts} documents, so --part is 1 to {parts}")


def _print_documents(documents: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(documents if len(documents) > 1 else documents[0], indent=1))
        return
    for document in documents:
        typer.echo(json.dumps(document, indent=1))
    if len(documents) > 1:
        typer.echo(
            f"{len(documents)} documents, as IAM takes 6,144 characters in each: attach all of "
            "them. --part 1 prints the first.",
            err=True,
        )
