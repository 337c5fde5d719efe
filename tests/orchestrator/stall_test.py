"""When a job counts as frozen: what the runbook says, or ten of its lines' expected time."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.catalog import load_catalog
from orchestrator.plan import make_plan
from orchestrator.runbook import load_runbook

RUNBOOK = """
name: stall
cap_usd: 400
regions: [us-east-1]
pins: cpu
boxes:
  l40s: {instance: g6e.4xlarge, hours: 70}
jobs:
  one: {box: l40s, JOB}
"""


@pytest.mark.parametrize(
    "job, stall_s",
    [
        ("command: x", None),
        ("command: x, stall: 20m", 1200),
        ("program: sft, stall: 90s", 90),
        ("program: sft", 3600),
        ("program: sft, hours: 30, config: {steps: 5000}", 10 * 30 * 3600 * 50 // 5000),
        ("program: evaluate, config: {model: org/m}", None),
        ("program: outage, config: {model: org/m, steps: 4}", None),
        ("program: grpo, hours: 10, config: {model: org/m, steps: 1000}", 3600),
        ("program: grpo, hours: 60, config: {model: org/m, steps: 100}", 21_600),
    ],
)
def test_a_job_is_judged_by_its_expected_step_or_never(
    job: str, stall_s: int | None, tmp_path: Path
) -> None:
    path = tmp_path / "stall.yaml"
    path.write_text(RUNBOOK.replace("JOB", job))
    plan = make_plan(
        load_runbook(path),
        now=datetime(2026, 12, 1, tzinfo=UTC),
        catalog=load_catalog(),
        cloud="local",
        allow_stale_prices=True,
    )
    assert plan.job("one").stall_s == stall_s
