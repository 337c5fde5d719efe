"""huggingface/trl#2923, vllm-project/vllm#5484 and #8058: a collective that never returns.

There: at the first sync of weights one rank waits in NCCL for another, for ever. Both GPUs are at
100 %, nothing fails, and the machine is paid for until somebody looks.
Here: two processes of a job, one in a collective that spins, one that waits for it. Without a new
step for its limit the real agent writes down where each of them stands, ends both, and tries
again; the second time it fails, its stacks and its last checkpoint are in S3, and the box is off.
A job of ours has such a limit without asking: ten times the time between its lines.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.catalog import load_catalog
from orchestrator.plan import make_plan
from orchestrator.runbook import load_runbook
from tests.incidents.desks import cloud, rig, shared_cloud
from tests.orchestrator.box.rig import Rig

__all__ = ["cloud", "rig", "shared_cloud"]

RANKS = """
import faulthandler, json, os, signal, subprocess, sys, threading
faulthandler.register(signal.SIGUSR1, all_threads=True)
if len(sys.argv) > 1:
    def update_weights_waits_for_rank_0():
        threading.Event().wait()
    update_weights_waits_for_rank_0()
os.makedirs("out/checkpoint-2", exist_ok=True)
open("out/checkpoint-2/adapter", "w").write("of step 2")
open("out/checkpoint-2/trainer_state.json", "w").write("{}")
with open(os.environ["GPURUN_METRICS"], "a") as file:
    for step in (1, 2):
        file.write(json.dumps({"step": step, "max_steps": 9}) + chr(10))
other = subprocess.Popen([sys.executable, sys.argv[0], "rank-1"])
def all_reduce_that_never_returns():
    while True:
        pass
all_reduce_that_never_returns()
"""
RUNBOOK = """
name: stall
cap_usd: 40
regions: [us-east-1]
pins: cpu
boxes:
  l4: {instance: g6.4xlarge, hours: 7}
jobs:
  grpo: {box: l4, program: grpo, config: {model: org/m, steps: STEPS}, hours: 5h}
"""


@pytest.mark.slow
def test_ranks_that_wait_for_each_other_are_written_down_ended_and_the_box_is_off(
    rig: Rig,
) -> None:
    (rig.root / "ranks.py").write_text(RANKS)
    rig.job("grpo", f"exec {sys.executable} {rig.root}/ranks.py", stall_s=2, retries=1)
    rig.run()
    status = rig.status("grpo")
    assert (status["state"], status["attempt"], status["step"]) == ("failed", 2, 2)
    assert status["reason"].startswith("frozen: no new step for 2 s")
    stacks = rig.file("grpo", "stacks.txt").decode()
    assert stacks.count("=== ") == 2  # one for each try
    assert "2 processes" in stacks
    assert "in all_reduce_that_never_returns" in stacks
    assert "in update_weights_waits_for_rank_0" in stacks
    assert rig.file("grpo", "out/checkpoint-2/adapter") == b"of step 2"


@pytest.mark.parametrize("steps, limit_h", [(5, 10), (10, 5), (500, 1)])
def test_a_program_s_limit_is_ten_times_its_step_and_an_hour_at_least(
    tmp_path: Path, steps: int, limit_h: float
) -> None:
    path = tmp_path / "stall.yaml"
    path.write_text(RUNBOOK.replace("STEPS", str(steps)))
    now = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
    plan = make_plan(load_runbook(path), now=now, catalog=load_catalog(), cloud="aws")
    (job,) = plan.jobs
    assert job.stall_s == limit_h * 3600
