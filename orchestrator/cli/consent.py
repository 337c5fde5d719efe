"""Asking before money is spent: only of a person who is there, and only a typed word counts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from orchestrator.errors import NotConfirmed

if TYPE_CHECKING:
    from orchestrator.plan import Plan


def at_most(plan: Plan) -> str:
    """What is asked for: another region may be dearer than the planned one, within the cap."""
    worst = f"${plan.worst_case_usd}"
    if not plan.next_regions:
        return worst
    return (
        f"{worst} in {plan.region}; up to the cap of ${plan.cap_usd} if it moves to another region"
    )


def require_terminal(amount: str) -> None:
    """Raises NotConfirmed where nobody can be asked."""
    if not sys.stdin.isatty():
        raise NotConfirmed(
            f"This may cost on AWS up to {amount}; nobody is there to be asked.",
            hint="Agree beforehand with --yes (make … YES=1).",
        )


def confirm(amount: str) -> None:
    """Raises NotConfirmed for any answer but the cloud's name."""
    answer = typer.prompt(f"This may cost on AWS up to {amount}. Type aws to go on")
    if answer.strip() != "aws":
        raise NotConfirmed("Nothing was created.")
