"""The run's report: one HTML file with results, reward curves, bill and deadlines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator import results
from orchestrator.clock import SystemClock
from orchestrator.money import usd
from orchestrator.progress import run_spans
from orchestrator.render import render_text
from orchestrator.snapshot import Snapshot
from orchestrator.verdicts import COLUMNS, markdown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from orchestrator.opened import Opened

_WIDTH, _HEIGHT, _PAD = 640, 200, 30
_LARGEST = 1e300
_CURVE = 2
"""Points that make a curve worth drawing."""


def write_report(opened: Opened, to: Path, *, seen: Snapshot | None = None) -> Path:
    """Write `to/<run id>/report.html` and return its path."""
    record, runner = opened.record, opened.runner()
    seen = seen or runner.look()
    now = SystemClock().now()
    spans = run_spans(record, runner.log.read(), runner.instances())
    page = render_text(
        "report.html.j2",
        seen=seen,
        record=record,
        columns=COLUMNS,
        bill=runner.purse.bill(spans, now),
        charts={job.name: chart for job in seen.jobs if (chart := _chart(opened, job.name))},
        now=now,
    )
    path = to / record.run_id / "report.html"
    with results.writing_into(path.parent, f"gpurun report {record.run_id}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, "utf-8")
    return path


def reference_table(opened: Opened) -> str:
    """The run in one line, and its numbers beside the references as Markdown."""
    record, seen = opened.record, opened.runner().look()
    if not seen.compared:
        return f"{seen.run_id}: none of its jobs has a `reference`"
    boxes = ", ".join(f"{box.name} {box.instance}" for box in seen.boxes)
    pins = ", ".join(sorted(record.plan.pins)) or "none"
    return (
        f"{seen.run_id} on {seen.cloud}, {seen.region}, {record.created_at:%Y-%m-%d}: {boxes}; "
        f"pins {pins}; {usd(seen.spent_usd)}; {seen.headline}\n\n{markdown(seen.compared)}"
    )


def _chart(opened: Opened, job: str) -> dict[str, Any] | None:
    """SVG points of a job's rewards: lines for training, dots for evals, bars where none is."""
    return _drawn(results.read_metrics(opened.bucket, opened.record.run_id, job))


def _drawn(said: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """From lines as the job wrote them: one whose step is no number has no place."""
    rows = [
        {"kind": row.get("kind"), "step": row["step"], "reward": _number(row.get("reward"))}
        for row in said
        if _number(row.get("step")) is not None
    ]
    train = [row for row in rows if row["kind"] == "train"]
    evals = [row for row in rows if row["kind"] == "eval" and row["reward"] is not None]
    scored = [row for row in train if row["reward"] is not None]
    if len(scored) + len(evals) < _CURVE:
        return None
    last = max(row["step"] for row in (*train, *evals)) or 1
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "pad": _PAD,
        "lines": [[_point(row, last) for row in part] for part in _unbroken(train)],
        "dots": [_point(row, last) for row in evals],
        "unscored": [_x(row["step"], last) for row in train if row["reward"] is None],
        "last_step": last,
    }


def _number(value: Any) -> float | None:
    """None for what can't be drawn; NaN is no reward, least of all 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= _LARGEST else None


def _unbroken(train: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Runs of scored steps: no line is drawn across a step that has no reward."""
    parts: list[list[dict[str, Any]]] = [[]]
    for row in train:
        if row.get("reward") is None:
            parts.append([])
        else:
            parts[-1].append(row)
    return [part for part in parts if part]


def _point(row: dict[str, Any], last: int) -> tuple[float, float]:
    """A reward in [0, 1] at its step."""
    reward = min(1.0, max(0.0, row["reward"]))
    return _x(row["step"], last), _HEIGHT - _PAD - (_HEIGHT - 2 * _PAD) * reward


def _x(step: int, last: int) -> float:
    return _PAD + (_WIDTH - 2 * _PAD) * step / last
