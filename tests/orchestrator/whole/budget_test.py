"""A shared budget as people use it: two processes at once, runs that share it, and its bill."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import SECONDS, Desk, run_id_in
from .own_script_test import RUNBOOK

pytestmark = pytest.mark.timeout(400)

RESERVES = Path(__file__).with_name("reserves.py")
LINES = 40


def test_two_processes_that_ask_at_once_are_let_in_up_to_the_cap_and_no_further(
    desk: Desk,
) -> None:
    desk.gpurun("budget", "race", "--cap", "30")
    start = [sys.executable, str(RESERVES), "race", str(LINES)]
    both = [
        subprocess.Popen(
            [*start, run],
            env=desk.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for run in ("one-261201-200000-ab2c", "two-261201-200000-ab2c")
    ]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    let_in = [int(process.communicate(timeout=SECONDS)[0]) for process in both]
    assert sum(let_in) == 30
    shown = desk.json("budget", "race")
    assert (shown["reserved_usd"], shown["free_usd"]) == ("30.00", "0.00")


def test_runs_share_a_budget_and_leave_in_it_what_they_cost(desk: Desk, other_desk: Desk) -> None:
    worst = float(desk.json("plan", desk.write_runbook(RUNBOOK))["worst_case_usd"])
    desk.gpurun("budget", "shared", "--cap", f"{worst * 1.5:.2f}")
    quick = RUNBOOK.replace("--steps 40", "--steps 3")
    printed = desk.gpurun("up", desk.write_runbook(quick), "--budget", "shared", "--detach")
    run_id = run_id_in(printed)
    refused = other_desk.write_runbook(quick)
    other_desk.gpurun("up", refused, "--budget", "shared", code=4)
    other_desk.gpurun("resume", run_id)

    shown = other_desk.json("budget", "shared")
    assert [(run["run"], run["state"]) for run in shown["runs"]] == [(run_id, "settled")]
    bill = other_desk.json("bill", run_id)
    assert float(shown["settled_usd"]) == pytest.approx(float(bill["total_usd"]))

    ours = {line["kind"]: float(line["usd"]) for line in bill["lines"]}
    items = bill["metered"]["items"]
    metered = {kind: _sum(items, kind) for kind in ("compute", "ebs", "ipv4", "s3", "transfer")}
    for mine, theirs in (("compute", "compute"), ("address", "ipv4")):
        assert ours[mine] == pytest.approx(metered[theirs], rel=0.01, abs=1e-5)
    assert ours["s3"] >= metered["s3"] + metered["transfer"] > 0
    assert run_id in other_desk.gpurun("budget")
    other_desk.gpurun("budget", "shared", "--cap", "0.0001", code=24)
    assert json.loads(other_desk.gpurun("budget", "--json"))[-1]["name"] == "shared"


def _sum(items: list[dict[str, str]], kind: str) -> float:
    return sum(float(item["usd"]) for item in items if item["kind"] == kind)
