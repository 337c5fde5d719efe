"""Asking before money is spent: only of a person who is there, and only a typed word counts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from orchestrator.errors import NotConfirmed

if TYPE_CHECKING:
    from decimal import Decimal


def require_terminal(worst_case_usd: Decimal) -> None:
    """Raises NotConfirmed where nobody can be asked."""
    if not sys.stdin.isatty():
        raise NotConfirmed(
            f"This may cost up to ${worst_case_usd} on AWS, and nobody is there to be asked.",
            hint="Agree beforehand with --yes (make … YES=1).",
        )


def confirm(worst_case_usd: Decimal) -> None:
    """Raises NotConfirmed for any answer but the cloud's name."""
    answer = typer.prompt(f"This may cost up to ${worst_case_usd} on AWS. Type aws to go on")
    if answer.strip() != "aws":
        raise NotConfirmed("Nothing was created.")
