"""A results file in a few lines: how good, how sure, and what isn't known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from agent_env.evaluation.results import Header, Row
from agent_env.statistics import Estimate, Rate, estimate, pass_all, pass_at, rate


def table(header: Header, rows: Sequence[Row], *, threshold: float) -> str:
    """The means with their intervals, pass@k and pass^k, and the unscored attempts.

    An attempt passes when its reward is at least `threshold`.
    """
    lines = [title(header), heading()]
    clusters = [row.task for row in rows]
    lines.append(estimate_line("reward", estimate([row.reward for row in rows], clusters)))
    for name in sorted({name for row in rows for name in row.scores}):
        found = estimate([row.scores.get(name) for row in rows], clusters)
        lines.append(estimate_line(f"score {name}", found))
    lines += _rates(header, rows, threshold)
    lines += accounts(header, rows)
    return "".join(f"{line}\n" for line in lines)


def title(header: Header) -> str:
    """What was measured, in a line."""
    tasks = f"{header.tasks} tasks × {header.attempts}"
    bundle = f"{header.env} {(header.bundle_hash or 'no hash')[:8]}"
    return f"{bundle} · {header.split} · {tasks} · {header.policy} · seed {header.seed}"


def heading() -> str:
    """What the columns of the lines below are."""
    return _line("", "mean", "95 % interval")


def accounts(header: Header, rows: Sequence[Row]) -> list[str]:
    """Every attempt is scored, unscored for a reason, or missing."""
    wanted = header.tasks * header.attempts
    lost = [row for row in rows if row.reward is None]
    lines = [f"scored {len(rows) - len(lost)} of {wanted} attempts"]
    lines += [
        f"unscored {count}: {code}, such as {_example(lost, code)}"
        for code, count in sorted(Counter(row.code for row in lost).items(), key=str)
    ]
    if wanted > len(rows):
        lines.append(f"missing {wanted - len(rows)}: not played yet")
    again = sum(row.tries > 1 for row in rows)
    if again:
        lines.append(f"played again after being unscored: {again}")
    cut = sum(row.cut for row in rows)
    if cut:
        lines.append(f"stopped at {header.max_calls} tool calls: {cut}")
    return lines


def estimate_line(name: str, found: Estimate) -> str:
    """A mean and where it lies."""
    if found.mean is None or found.low is None or found.high is None:
        return _line(name, "–", "nothing scored")
    if found.clusters < 2:
        return _line(name, f"{found.mean:.4f}", "one task: no interval")
    return _line(name, f"{found.mean:.4f}", f"{found.low:.4f} to {found.high:.4f}")


def _rates(header: Header, rows: Sequence[Row], threshold: float) -> list[str]:
    tasks: dict[str, list[float | None]] = {}
    for row in rows:
        tasks.setdefault(row.task, []).append(row.reward)
    named = {"pass@": pass_at, "pass^": pass_all}
    return [
        _rate_line(f"{name}{k}", rate(of, tasks, k, threshold=threshold), threshold)
        for name, of in named.items()
        for k in powers(header.attempts)
        if k > 1 or of is pass_at  # one attempt passes always when it passes once
    ]


def powers(attempts: int) -> list[int]:
    """1, 2, 4, … up to `attempts`, and `attempts` itself."""
    found = [1]
    while found[-1] * 2 <= attempts:
        found.append(found[-1] * 2)
    return sorted({*found, attempts})


def _rate_line(name: str, found: Rate, threshold: float) -> str:
    note = f"reward ≥ {threshold:g}"
    if found.left_out:
        note += f"; left out {found.left_out} with fewer scored"
    value = "–" if found.value is None else f"{found.value:.4f}"
    return _line(name, value, note)


def _line(name: str, value: str, note: str) -> str:
    return f"{name:<20} {value:>8}   {note}".rstrip()


def _example(lost: Iterable[Row], code: str | None) -> str:
    row = next(row for row in lost if row.code == code)
    first = (row.error or "").partition("\n")[0]
    return f"{row.task} attempt {row.attempt}: {first}"
