"""`agent-env check`: what is wrong with a bundle, and what to do about it."""

from __future__ import annotations

from typing import Annotated

import typer

from agent_env.checking import Checked, Finding, check
from agent_env.checking.check import SAMPLE
from agent_env.cli._told import told

FOUND = 1
"""The bundle has faults."""

BundleRef = Annotated[str, typer.Argument(help="A bundle's name, module:attribute, or a folder.")]


def check_bundle(
    bundle: BundleRef,
    tasks: Annotated[int, typer.Option(min=1, help="Tasks to play of each split.")] = SAMPLE,
) -> None:
    """Find what is wrong with a bundle before a trainer does."""
    with told():
        checked = check(bundle, sample=tasks)
    for finding in checked.findings:
        typer.echo(_lines(finding))
    typer.echo(_summary(checked))
    if checked.findings:
        raise typer.Exit(FOUND)


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
