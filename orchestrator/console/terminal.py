"""A console, and tables that keep their shape when it isn't a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import IO, Any

from rich.console import Console
from rich.table import Table

from orchestrator.typed import typed

# Columns of a table must not fold when a person pipes the output into a file.
_PLAIN_WIDTH = 118
_NUMBERS = frozenset(
    {"$/h", "hours", "worst", "expected", "vCPU", "cost", "worst case", "USD", "reserved", "spent"}
)


class _Console(Console):
    """Names commands as they must be typed."""

    def print(self, *objects: Any, **how: Any) -> None:
        super().print(*(typed(o) if isinstance(o, str) else o for o in objects), **how)


def make_console(*, stderr: bool = False, file: IO[str] | None = None) -> Console:
    """A console whose tables keep their shape when it isn't a terminal.

    Words from jobs and AWS are shown as they are: square brackets are no markup here.
    """
    options: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}
    console = _Console(stderr=stderr, file=file, **options)
    if not console.is_terminal:
        console = _Console(stderr=stderr, file=file, width=_PLAIN_WIDTH, **options)
    return console


def clock(at: datetime) -> str:
    """`29 Nov 19:42:07` in UTC."""
    return f"{at.astimezone(UTC):%d %b %H:%M:%S}"


def table_of(title: str, names: tuple[str, ...]) -> Table:
    """Numbers must stay whole on a narrow terminal, so no cell folds."""
    table = Table(title=title, title_justify="left", padding=(0, 1))
    for name in names:
        table.add_column(name, no_wrap=True, justify="right" if name in _NUMBERS else "left")
    return table
