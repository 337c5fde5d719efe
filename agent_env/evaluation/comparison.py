"""Two results files side by side, pair by pair: what one policy does better than another."""

from __future__ import annotations

from collections.abc import Sequence

from agent_env.errors import ResultsError
from agent_env.evaluation.results import Header, Row
from agent_env.evaluation.summary import estimate_line, heading, title
from agent_env.statistics import Difference, estimate, paired

Results = tuple[Header, Sequence[Row]]

_SAME = ("env", "bundle_hash", "split", "reward")


def compare(first: Results, second: Results) -> str:
    """Means of both, and the difference second − first over the attempts that both scored.

    Raises ResultsError when they measured different things.
    """
    _check_comparable(first[0], second[0])
    found = difference(first[1], second[1])
    lines = [f"A  {title(first[0])}", f"B  {title(second[0])}", heading()]
    lines += [_means("A", first[1]), _means("B", second[1])]
    lines.append(estimate_line("B − A, paired", found.estimate))
    lines += _accounts(found)
    if first[0].seed != second[0].seed:
        lines.append("the seeds differ: the two of a pair share their task, not their luck")
    return "".join(f"{line}\n" for line in lines)


def difference(first: Sequence[Row], second: Sequence[Row]) -> Difference:
    """Second − first by task and attempt, clustered by task."""
    before, after = ({row.key: row.reward for row in rows} for rows in (first, second))
    return paired(before, after, lambda key: key[0])


def _means(name: str, rows: Sequence[Row]) -> str:
    found = estimate([row.reward for row in rows], [row.task for row in rows])
    return estimate_line(f"{name} reward", found)


def _accounts(found: Difference) -> list[str]:
    lines = [f"B is better {found.wins}, worse {found.losses}, equal {found.ties}"]
    if found.estimate.unscored:
        lines.append(f"left out, unscored on a side: {found.estimate.unscored}")
    if found.unpaired:
        lines.append(f"left out, in one file only: {found.unpaired}")
    return lines


def _check_comparable(first: Header, second: Header) -> None:
    one, other = _measured(first), _measured(second)
    differing = [
        f"{name} is {one[name]!r} in the first and {other[name]!r} in the second"
        for name in one
        if one[name] != other[name]
    ]
    if differing:
        raise ResultsError(f"these can't be compared: {'; '.join(differing)}")


def _measured(header: Header) -> dict[str, str | None]:
    """A server of several bundles puts the bundle's name before the split's: the same split."""
    split = header.split.removeprefix(f"{header.env}/")
    return {name: getattr(header, name) for name in _SAME} | {"split": split}
