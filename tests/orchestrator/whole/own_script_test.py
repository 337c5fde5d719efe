"""Someone else's script under the same promises: priced, run, synced, powered off, pulled."""

from __future__ import annotations

import json

import pytest

from .conftest import Desk, run_id_in, tree

pytestmark = pytest.mark.timeout(400)

RUNBOOK = """
name: own
cap_usd: 2
regions: [us-east-1]
loss_bound: 4s
pins: none
boxes:
  l4: {instance: g6.4xlarge, hours: 0.05, drain: 20s, cloud_margin: 60s}
jobs:
  train:
    box: l4
    command: python3 trainer.py --steps 40
    workdir: project
    results: [out]
    hours: 0.02
"""
TOTAL = b"780\n"  # the sum of 0 to 39


def test_a_script_that_knows_nothing_of_us_is_run_and_its_results_come_home(
    desk: Desk, other_desk: Desk
) -> None:
    printed = desk.gpurun("up", desk.write_runbook(RUNBOOK))
    run_id = run_id_in(printed)
    home = desk.folder / "results" / run_id
    assert (home / "train" / "out" / "weights.txt").read_bytes() == TOTAL
    assert b"step 40 total 780" in (home / "train" / "log.txt").read_bytes()
    assert (home / "report.html").exists()

    other_desk.gpurun("pull", run_id)
    assert tree(other_desk.folder / "results" / run_id) == tree(home)

    status = other_desk.json("status", run_id)
    assert status["stage"] == "clean"
    assert [box["state"] for box in status["boxes"]] == ["terminated"]
    assert "InstanceInitiatedShutdown" in status["boxes"][0]["reason"]
    bill = other_desk.json("bill", run_id)
    assert 0 < float(bill["total_usd"]) < float(bill["worst_case_usd"]) <= float(bill["cap_usd"])


def test_two_runs_side_by_side_dont_touch_each_other(desk: Desk, other_desk: Desk) -> None:
    slow = RUNBOOK.replace("--steps 40", "--steps 600")
    ended = run_id_in(desk.gpurun("up", desk.write_runbook(slow), "--detach"))
    kept = run_id_in(other_desk.gpurun("up", other_desk.write_runbook(slow), "--detach"))
    desk.gpurun("down", ended)
    assert other_desk.json("status", kept)["boxes"][0]["state"] in ("pending", "running")
    other_desk.gpurun("resume", kept)
    home = other_desk.folder / "results" / kept
    assert (home / "train" / "out" / "weights.txt").read_bytes() == b"179700\n"
    desk.gpurun("down", ended)  # a second time it is a no-op


def test_a_command_is_run_on_a_box_and_down_lets_its_job_save_and_loses_nothing(
    desk: Desk,
) -> None:
    slow = RUNBOOK.replace("--steps 40", "--steps 4000").replace(
        "loss_bound: 4s", "loss_bound: 1h"
    )
    run_id = run_id_in(desk.gpurun("up", desk.write_runbook(slow), "--detach"))
    spec = "/opt/gpurun/boxes/l4.json"
    wait = f"while [ ! -e {spec} ]; do sleep 0.1; done; cat {spec}"
    assert run_id in desk.gpurun("ssh", run_id, "l4", "--", wait)
    assert (
        desk.gpurun("ssh", run_id, "l4", "--", "cat", stdin="what is piped\n") == "what is piped\n"
    )
    begun = "until grep -qs 'step 3' /opt/gpurun/jobs/train/log.txt; do sleep 0.1; done"
    typed = desk.gpurun(
        "ssh", run_id, "l4", stdin=f"{begun}\necho sum $((40+2))\nexit 3\n", code=3
    )
    assert "sum 42" in typed

    desk.gpurun("down", run_id)
    desk.gpurun("pull", run_id, code=12)
    home = desk.folder / "results" / run_id / "train"
    step, total = json.loads((home / "out" / "state.json").read_text())
    assert step >= 3
    assert (home / "log.txt").read_text().splitlines()[-1] == f"step {step} total {total}"
    assert desk.json("status", run_id)["jobs"][0]["state"] == "cut"


def test_a_job_that_fails_is_told_by_the_exit_code_and_its_log_is_home(desk: Desk) -> None:
    broken = RUNBOOK.replace("python3 trainer.py --steps 40", "echo no luck; false")
    printed = desk.gpurun("up", desk.write_runbook(broken), code=11)
    home = desk.folder / "results" / run_id_in(printed)
    assert b"no luck" in (home / "train" / "log.txt").read_bytes()
