"""`gpurun aws …`: what an AWS account has to allow before a run may spend anything there."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.options import Json

if TYPE_CHECKING:
    from orchestrator.aws.policy import Scope

aws_app = typer.Typer(help="A real AWS account: what it must allow.", no_args_is_help=True)


class Whom(StrEnum):
    """Who is to be allowed something."""

    RUNNER = "runner"
    REAPER = "reaper"


@aws_app.callback()
def aws_group() -> None:
    """Keeps the group a group while it has one command."""


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
