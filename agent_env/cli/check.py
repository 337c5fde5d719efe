"""`agent-env check`: what is wrong with a bundle, and what to do about it."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from agent_env.checking import Checked, Finding, check
from agent_env.checking.check import SAMPLE, TIMEOUT_S
from agent_env.cli._told import finite, told

FOUND = 1
"""The bundle has faults."""
EVERY_S = 5.0
"""Between two lines of progress."""

BundleRef = Annotated[str, typer.Argument(help="A bundle's name, module:attribute, or a folder.")]


def check_bundle(
    bundle: BundleRef,
    tasks: Annotated[int, typer.Option(min=1, help="Tasks to play of each split.")] = SAMPLE,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds for all of it; a single step has 30 at most.")
    ] = TIMEOUT_S,
) -> None:
    """Find what is wrong with a bundle before a trainer does."""
    with told():
        finite("--timeout", timeout)
        checked = check(bundle, sample=tasks, timeout_s=timeout, progress=_Progress())
    for finding in checked.findings:
        typer.echo(_lines(finding))
    typer.echo(_summary(checked))
    if checked.findings:
        raise typer.Exit(FOUND)


class _Progress:
    """A line on stderr now and then; a check that is soon over has none."""

    def __init__(self) -> None:
        self._next = time.monotonic() + EVERY_S

    def __call__(self, played: int, total: int, at: str) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY_S
        of = f"{played} of {total} tasks played, " if total else ""
        typer.echo(f"{of}now at {at}", err=True)


def _lines(finding: Finding) -> str:
    return f"{finding.rule} · {finding.where}\n  {finding.what}\n  {finding.fix}"


def _summary(checked: Checked) -> str:
    faults = len(checked.findings)
    said = "no fault" if not faults else "1 fault" if faults == 1 else f"{faults} faults"
    name = checked.name or "the bundle"
    return (
        f"{name}: {said}; {checked.splits} splits, {checked.tasks} tasks, {checked.played} of them"
        " played in two processes"
    )
