"""`gpurun kill-proof`: on an account, for about a cent, every enforcer really ends a box."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.consent import confirm, require_terminal
from orchestrator.cli.options import Cap, Cloud, Json, OnCloud

if TYPE_CHECKING:
    from orchestrator.proof.checks import Check


def kill_proof(
    cloud: OnCloud = Cloud.LOCAL,
    cap: Cap = None,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask before spending.")] = False,
    to: Annotated[
        Path | None, typer.Option("--to", help="Folder that gets what the box saved.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show that each enforcer by itself ends a box; on AWS for about a cent (asks first)."""
    from orchestrator.money import usd  # noqa: PLC0415
    from orchestrator.proof import command  # noqa: PLC0415

    def say(line: str) -> None:
        typer.echo(line, err=as_json)

    def tell(check: Check) -> None:
        say(check.words())

    plan = command.quote(cloud.value, cap)
    for line in command.header(plan):
        say(line)
    if cloud is Cloud.AWS and not yes:
        worst = usd(plan.worst_case_usd)
        require_terminal(worst)
        command.open_account("aws")
        confirm(worst)
    report = command.prove(cloud.value, plan.cap_usd, to, tell=tell, step=say)
    if as_json:
        typer.echo(report.model_dump_json(indent=1))
    else:
        say(command.summary(report))
    command.raise_unless_proved(report)
