"""SIGKILL of a real trainer in a box: it goes on from its checkpoint, with equal numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Desk, run_id_in

GRPO = """
    box: l40s
    program: grpo
    inputs: {model: {job: sft, path: out/model}}
    config:
      {steps: 9, rollouts_per_step: 8, rollouts_per_task: 8, save_steps: 3, seed: 3,
       eval_samples: 1, eval_tasks: 4}
    hours: 30s
"""
RUNBOOK = f"""
name: killed
cap_usd: 5
regions: [us-east-1]
loss_bound: 4s
pins: cpu
boxes:
  l40s: {{instance: g6e.4xlarge, hours: 0.25, drain: 2m, cloud_margin: 1m}}
jobs:
  sft:
    box: l40s
    program: sft
    config: {{steps: 20, demonstrations: 20, eval_samples: 1, eval_tasks: 4, extra_rounds: 0}}
    hours: 30s
  struck: {GRPO}
  calm: {GRPO}
"""
METRICS = "/opt/gpurun/jobs/struck/metrics.jsonl"
KILL_AFTER_STEP_4 = (
    f"until grep -qs '\"step\": 4' {METRICS}; do sleep 0.1; done;"
    " pkill -KILL -f '[a]gent_env.training.grpo'"
)
# When a line was written, and how long things took.
TIMES = ("t", "seconds", "step_seconds", "eval_seconds", "step_time", "step_s", "env/waited_s")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_trainer_killed_in_mid_training_ends_like_an_undisturbed_one(desk: Desk) -> None:
    run_id = run_id_in(desk.gpurun("up", desk.write_runbook(RUNBOOK), "--detach"))
    desk.gpurun("ssh", run_id, "l40s", "--", KILL_AFTER_STEP_4)
    desk.gpurun("resume", run_id)

    assert _job(desk, run_id, "struck")["attempt"] == 2
    assert _job(desk, run_id, "calm")["attempt"] == 1
    assert _metrics(desk, run_id, "struck") == _metrics(desk, run_id, "calm")


def _job(desk: Desk, run_id: str, name: str) -> dict[str, Any]:
    jobs = desk.json("status", run_id)["jobs"]
    return next(job for job in jobs if job["name"] == name)


def _metrics(desk: Desk, run_id: str, job: str) -> list[dict[str, Any]]:
    text = (desk.folder / "results" / run_id / job / "metrics.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert rows[-1]["kind"] == "final"
    return [{k: v for k, v in row.items() if k not in TIMES} for row in rows]
