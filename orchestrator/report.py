"""The run's report: one HTML file with results, reward curves, bill and deadlines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator import results
from orchestrator.bill import bill
from orchestrator.catalog import load_catalog
from orchestrator.clock import SystemClock
from orchestrator.progress import Snapshot, run_spans
from orchestrator.render import render_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from orchestrator.opened import Opened

_WIDTH, _HEIGHT, _PAD = 640, 200, 30


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
        bill=bill(
            spans,
            load_catalog(),
            record.region,
            cap_usd=record.plan.cap_usd,
            worst_case_usd=record.plan.worst_case_usd,
            now=now,
        ),
        charts={job.name: chart for job in seen.jobs if (chart := _chart(opened, job.name))},
        now=now,
    )
    path = to / record.run_id / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, "utf-8")
    return path


def _chart(opened: Opened, job: str) -> dict[str, Any] | None:
    """SVG points of a job's rewards: a line for training, dots for evals."""
    rows = results.read_metrics(opened.bucket, opened.record.run_id, job)
    train = [(r["step"], r["reward"]) for r in rows if _has_reward(r, "train")]
    evals = [(r["step"], r["reward"]) for r in rows if _has_reward(r, "eval")]
    if len(train) + len(evals) < 2:  # a single point is no curve
        return None
    last = max(step for step, _ in (*train, *evals)) or 1
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "line": " ".join(f"{x:.1f},{y:.1f}" for x, y in _points(train, last)),
        "dots": _points(evals, last),
        "last_step": last,
    }


def _has_reward(row: dict[str, Any], kind: str) -> bool:
    return (
        row.get("kind") == kind and row.get("reward") is not None and row.get("step") is not None
    )


def _points(pairs: Sequence[tuple[int, float]], last: int) -> list[tuple[float, float]]:
    """Steps to x, rewards in [0, 1] to y."""
    inner_w, inner_h = _WIDTH - 2 * _PAD, _HEIGHT - 2 * _PAD
    return [
        (_PAD + inner_w * step / last, _HEIGHT - _PAD - inner_h * min(1.0, max(0.0, reward)))
        for step, reward in pairs
    ]
