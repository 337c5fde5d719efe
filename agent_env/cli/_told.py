"""An error of ours becomes one line and an exit code, never a traceback."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from agent_env.errors import AgentEnvError, ResultsError

BAD_INPUT = 2
"""What was asked for can't be done; nothing was begun."""


@contextmanager
def told() -> Iterator[None]:
    """Print the error of what is inside on stderr and end with `BAD_INPUT`."""
    try:
        yield
    except AgentEnvError as error:
        typer.echo(f"agent-env: {error}", err=True)
        raise typer.Exit(BAD_INPUT) from None


def finite(option: str, number: float) -> None:
    """Raise ResultsError for nan and inf."""
    if not math.isfinite(number):
        raise ResultsError(f"{option} {number}: give a number, such as 1.0")
