"""The kill-proof as it is typed, on a local cloud of its own: boxes really boot and really end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from .conftest import Desk

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
COMMAND = [sys.executable, "-m", "orchestrator.cli", "kill-proof"]
BOXES = ("agent", "timer", "schedule", "guard", "halted", "controller", "sweep")


def ours(desk: Desk) -> list[dict[str, Any]]:
    """What a kill-proof has in the account."""
    found = desk.json("sweep")["found"]
    return [row for row in found if row["run"].startswith("killproof-")]


def test_every_enforcer_by_itself_ends_a_box_and_nothing_is_left(desk: Desk) -> None:
    report = json.loads(desk.gpurun("kill-proof", "--json", "--to", desk.folder / "saved"))
    verdicts = {check["name"]: check["verdict"] for check in report["checks"]}
    # Only a box with a system of its own can be halted.
    assert {name for name, said in verdicts.items() if said != "PASS"} <= {"ended: halted"}
    assert "FAIL" not in verdicts.values()
    assert {f"ended: {box}" for box in BOXES} <= set(verdicts)
    assert {"saved before power-off", "loss bound", "box may not delete-own"} <= set(verdicts)
    assert {"role spares other runs", "swept whole", "nothing is left"} <= set(verdicts)
    assert report["left"] == []
    assert 0 < float(report["total_usd"]) <= float(report["worst_case_usd"]) <= 0.10
    lines = next(desk.folder.glob("saved/killproof-*/*/out/ticks.txt")).read_text().splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(len(lines)))
    assert ours(desk) == []


def test_a_proof_that_is_told_to_end_leaves_nothing(desk: Desk) -> None:
    with subprocess.Popen(
        COMMAND, cwd=desk.folder, env=desk.env, stdout=subprocess.PIPE, text=True
    ) as proof:
        assert proof.stdout is not None
        assert any("launching schedule" in line for line in iter(proof.stdout.readline, ""))
        proof.send_signal(signal.SIGTERM)
        rest = proof.stdout.read()
    assert proof.returncode != 0
    assert "nothing is left" in rest
    assert ours(desk) == []


def test_money_is_only_spent_when_somebody_said_so(desk: Desk) -> None:
    desk.gpurun("kill-proof", "--cloud", "aws", code=17)
    desk.gpurun("kill-proof", "--cloud", "aws", "--cap", "0.02", "--yes", code=4)
