"""`agent-env tasks`: the splits of a bundle, or the tasks of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from agent_env.bundle import Bundle, load_bundle
from agent_env.bundle import told as cause
from agent_env.cli._told import told
from agent_env.errors import BundleError, TaskNotFound
from agent_env.types import TaskData

BundleRef = Annotated[str, typer.Argument(help="A bundle's name, module:attribute, or a folder.")]


def tasks(
    bundle: BundleRef,
    split: Annotated[str | None, typer.Option(help="Only this split, with its tasks.")] = None,
) -> None:
    """List a bundle's splits, or the tasks of one."""
    with told():
        _list(load_bundle(bundle), split)


def _list(found: Bundle, split: str | None) -> None:
    if split is None:
        for name in found.splits:
            typer.echo(f"{name}\t{len(_tasks(found, name))} tasks")
        return
    if split not in found.splits:
        raise TaskNotFound(f"no split {split!r}; there are: {', '.join(found.splits)}")
    for task in _tasks(found, split):
        typer.echo(f"{task.index}\t{task.id}\t{task.name}")


def _tasks(found: Bundle, split: str) -> Sequence[TaskData]:
    try:
        return found.tasks(split)
    except (Exception, SystemExit) as error:
        raise BundleError(f"tasks({split!r}) of {found.name}: {cause(error)}") from error
