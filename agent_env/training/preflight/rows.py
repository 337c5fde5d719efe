"""Has every row of a dataset an environment? The trainer finds out when the row's turn comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_env.training.config.parsing import near

COLUMN = "environment"
"""The column by which a trainer with several factories chooses one."""


def row_faults(rows: Any, factories: Any, named: str) -> Iterator[str]:
    """The first row, and how many more, that name an environment there isn't."""
    if not isinstance(factories, Mapping):
        yield from _splits(rows, factories, named)
        return
    known = list(factories)
    owners = column(rows, COLUMN)
    wrong = [(at, owner) for at, owner in enumerate(owners) if owner not in factories]
    if wrong:
        at, owner = wrong[0]
        said = f"names no {COLUMN}" if owner is None else f"is of the {COLUMN} {owner!r}"
        hint = near(owner, known) if isinstance(owner, str) else ""
        yield (
            f"{named}: row {at} {said}{hint}; there are: {', '.join(known)}{_more(len(wrong))};"
            f" take rows from the dataset() of the env whose factories these are"
        )
        return
    for name, factory in factories.items():
        own = [at for at, owner in enumerate(owners) if owner == name]
        yield from _splits(rows, factory, named, own)


def column(rows: Any, name: str) -> list[Any]:
    """A column of a dataset, or of a sequence of dicts; None where there is no such value."""
    names = getattr(rows, "column_names", None)
    if names is not None:
        return list(rows[name]) if name in names else [None] * len(rows)
    return [row.get(name) for row in rows]


def _splits(rows: Any, factory: Any, named: str, only: list[int] | None = None) -> Iterator[str]:
    """Our own factories also know which splits have the tools that they offer."""
    known = getattr(factory, "splits", None)
    if known is None:
        return
    splits = column(rows, "split")
    at_all = range(len(splits)) if only is None else only
    wrong = [at for at in at_all if splits[at] is not None and splits[at] not in known]
    if wrong:
        yield (
            f"{named}: row {wrong[0]} is of the split {splits[wrong[0]]!r}, the factory of:"
            f" {', '.join(known)}{_more(len(wrong))}; name that split to factory_for() too"
        )


def _more(count: int) -> str:
    return f" (and {count - 1} more such rows)" if count > 1 else ""
