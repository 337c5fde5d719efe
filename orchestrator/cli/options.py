"""What the commands' arguments and options are called, and what they may hold."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.typed import chosen


class Cloud(StrEnum):
    """Where a run goes. Local by default: spending money is always asked for by name."""

    LOCAL = "local"
    AWS = "aws"


def parse_cloud(text: str) -> Cloud:
    try:
        return Cloud(text.lower())
    except ValueError as error:
        raise typer.BadParameter(
            f"there is no cloud {text!r}: local rehearses on this machine and costs nothing, aws"
            " is your AWS account. Type the same command with --cloud local"
        ) from error


def parse_usd(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation as error:
        raise typer.BadParameter(f"{text!r} is not an amount in USD, like 40") from error
    if not value.is_finite() or value <= 0:
        raise typer.BadParameter(f"a cap must be more than 0 USD, not {text}")
    if value > 100_000:
        raise typer.BadParameter(f"a cap is at most 100000 USD, not {text}")
    return value


def parse_reason(text: str) -> str:
    if not text.strip() or text.startswith("-"):
        raise typer.BadParameter("say why the jobs may not save first, as in --now 'wrong data'")
    return text.strip()


def remember_cloud(value: Cloud) -> Cloud:
    """So that messages can name commands that ask the same cloud."""
    chosen.set(value.value)
    return value


Runbook = Annotated[Path, typer.Argument(help="The runbook, a YAML file.")]
Run = Annotated[str, typer.Argument(help="The run id that `gpurun up` printed.")]
OnCloud = Annotated[
    Cloud,
    typer.Option(
        "--cloud",
        parser=parse_cloud,
        metavar="[local|aws]",
        help="local (no money) or aws.",
        callback=remember_cloud,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a machine.")]
Cap = Annotated[
    Decimal | None, typer.Option("--cap", parser=parse_usd, help="Spend at most this many USD.")
]
Now = Annotated[
    str | None,
    typer.Option(
        "--now",
        metavar="REASON",
        parser=parse_reason,
        help="Let no job save first, and say why: its last minutes may be lost.",
    ),
]
EndExpired = Annotated[
    bool, typer.Option("--yes", help="End what is past its expiry; never a run that goes on.")
]
To = Annotated[Path, typer.Option("--to", help="Folder that gets <run id>/…")]
Budget = Annotated[
    str | None, typer.Option("--budget", help="Share this budget's cap with its other runs.")
]
Stale = Annotated[
    bool, typer.Option("--allow-stale-prices", help="Plan on prices older than 180 days.")
]
