"""`agent-env tasks`: the splits of a bundle or several, or the tasks of one split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer

from agent_env.bundle import Bundle, load_bundle
from agent_env.bundle import told as cause
from agent_env.cli._told import told
from agent_env.errors import BundleError, TaskNotFound
from agent_env.nearest import nearest
from agent_env.types import TaskData

BundleRefs = Annotated[
    list[str], typer.Argument(help="A bundle's name, module:attribute, or a folder; or several.")
]


class _Split(NamedTuple):
    bundle: Bundle
    name: str
    """The bundle's own; clients of several bundles call it otherwise."""


def tasks(
    bundle: BundleRefs,
    split: Annotated[str | None, typer.Option(help="Only this split, with its tasks.")] = None,
) -> None:
    """List the splits of bundles, as serve names them, or the tasks of one."""
    with told():
        _list(_splits([load_bundle(ref) for ref in bundle]), split)


def _splits(bundles: Sequence[Bundle]) -> dict[str, _Split]:
    from agent_env.server.served import by_name, split_name  # noqa: PLC0415  # 0.3 s

    return {
        split_name(owner, split, found, alone=len(bundles) == 1): _Split(found, split)
        for owner, found in by_name(bundles).items()
        for split in found.splits
    }


def _list(splits: dict[str, _Split], wanted: str | None) -> None:
    if wanted is None:
        for name, split in splits.items():
            typer.echo(f"{name}\t{len(_tasks(split))} tasks")
        return
    if wanted not in splits:
        raise TaskNotFound(f"no split {wanted!r}; {nearest(wanted, splits)}")
    for task in _tasks(splits[wanted]):
        typer.echo(f"{task.index}\t{task.id}\t{task.name}")


def _tasks(split: _Split) -> Sequence[TaskData]:
    try:
        return split.bundle.tasks(split.name)
    except (Exception, SystemExit) as error:
        where = f"tasks({split.name!r}) of {split.bundle.name}"
        raise BundleError(f"{where}: {cause(error)}") from error
