"""A job's numbers beside those that somebody measured before: one row each, with a verdict.

A verdict is passed on a number that the finished job reported, and on nothing else: what a job
never told, or told as unscored, is `not measured`, however it ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict

from orchestrator.planned import Reference

SAME = "as the reference"
NOT_MEASURED = "not measured"
_UNREADABLE = 12
"""Powers of ten."""


class Compared(BaseModel):
    """One number of one job."""

    model_config = ConfigDict(frozen=True)

    job: str
    number: str
    measured: Decimal | None
    """None: not measured."""
    value: Decimal
    tolerance: Decimal
    source: str
    verdict: str

    @property
    def cells(self) -> tuple[str, str, str, str, str, str]:
        """As text: job, number, measured, reference, verdict, source."""
        measured = "–" if self.measured is None else short(self.measured)
        reference = f"{plain(self.value)} ± {plain(self.tolerance)}"
        return self.job, self.number, measured, reference, self.verdict, self.source

    @property
    def differs(self) -> bool:
        return self.verdict not in (SAME, NOT_MEASURED)


COLUMNS = ("job", "number", "measured", "reference", "verdict", "source")


def compared(
    job: str, references: Mapping[str, Reference], metrics: Mapping[str, Any], *, done: bool
) -> tuple[Compared, ...]:
    """A row for each reference of a job; `metrics` are the final ones if it is `done`."""
    return tuple(
        _compared(job, name, reference, _number(metrics.get(name)) if done else None)
        for name, reference in references.items()
    )


def markdown(rows: Sequence[Compared]) -> str:
    """The rows as a table of Markdown."""
    return "\n".join(_lines(rows))


def plain(number: Decimal) -> str:
    """Without an exponent, and without zeros that say nothing."""
    return f"{number.normalize():f}"


def short(number: Decimal) -> str:
    """Four digits are enough to compare by; an exponent only where there is no reading it."""
    text = f"{number:.4g}"
    return f"{number:f}" if "e" in text and abs(number.adjusted()) < _UNREADABLE else text


def _compared(job: str, name: str, reference: Reference, number: Decimal | None) -> Compared:
    return Compared(
        job=job,
        number=name,
        measured=number,
        value=reference.value,
        tolerance=reference.tolerance,
        source=reference.source,
        verdict=_verdict(reference, number),
    )


def _verdict(reference: Reference, number: Decimal | None) -> str:
    if number is None:
        return NOT_MEASURED
    apart = number - reference.value
    if abs(apart) <= reference.tolerance:
        return SAME
    return f"differs by {'+' if apart > 0 else '−'}{short(abs(apart))}"


def _number(value: Any) -> Decimal | None:
    """None for what is no number: an unscored reward least of all counts as one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = Decimal(str(value)) if isinstance(value, float) else Decimal(value)
    return number if number.is_finite() else None


def _lines(rows: Sequence[Compared]) -> Iterator[str]:
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|{'---|' * len(COLUMNS)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row.cells)} |"
