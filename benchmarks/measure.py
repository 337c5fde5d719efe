"""One measured number beside the limit it has to stay under (or, for a gain, above)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """`limit` is a ceiling unless `floor` is set; both are in `unit`."""

    name: str
    value: float
    unit: str
    limit: float
    floor: bool = False

    @property
    def ratio(self) -> float:
        """Value over limit: good below 1 for a ceiling, above 1 for a floor."""
        return self.value / self.limit

    @property
    def good(self) -> bool:
        """Whether the value keeps its limit."""
        return self.ratio >= 1 if self.floor else self.ratio <= 1


def table(measures: list[Measure]) -> str:
    """Aligned lines: name, value, limit, ratio, and a word for what missed."""
    rows = [_row(measure) for measure in measures]
    width = max((len(measure.name) for measure in measures), default=0)
    return "\n".join(f"{name:<{width}}  {rest}" for name, rest in rows)


def _row(measure: Measure) -> tuple[str, str]:
    word = "at least" if measure.floor else "at most"
    value = f"{measure.value:8.3f} {measure.unit:<8}"
    limit = f"{word} {measure.limit:g} {measure.unit}"
    return measure.name, f"{value} {limit:<20} ratio {measure.ratio:5.2f}{_miss(measure)}"


def _miss(measure: Measure) -> str:
    return "" if measure.good else "  MISSED"
