"""The command as a person types it: help, plans for machines, and errors with their exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RUNBOOKS = Path(__file__).resolve().parents[2] / "runbooks"
ALONE = {
    "AWS_EC2_METADATA_DISABLED": "true",  # no credentials from a box we may happen to run on
    "AWS_CONFIG_FILE": "/nonexistent",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
}


def gpurun(*args: str | Path, home: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with no account and no local cloud."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "GPURUN_"))}
    done = subprocess.run(  # our own command
        [sys.executable, "-m", "orchestrator.cli", *map(str, args)],
        env=env | ALONE | {"GPURUN_HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_the_plan_for_a_machine_has_what_it_promises(tmp_path: Path) -> None:
    done = gpurun("plan", RUNBOOKS / "rehearsal.yaml", "--json", home=tmp_path)
    plan = json.loads(done.stdout)
    assert float(plan["expected_usd"]) < float(plan["worst_case_usd"]) <= float(plan["cap_usd"])
    assert [box["name"] for box in plan["boxes"]] == ["l40s", "l4"]
    assert {"sft", "grpo"} <= {job["name"] for job in plan["jobs"]}


def test_the_plan_shows_deadlines_and_the_sum_against_the_cap(tmp_path: Path) -> None:
    shown = gpurun("plan", RUNBOOKS / "gpu-proof.yaml", "--cloud", "aws", home=tmp_path).stdout
    for words in ("g6.4xlarge", "drain", "power-off", "worst case", "of cap $40.00", "L-DB2E81BA"):
        assert words in shown


def test_a_cap_below_the_worst_case_is_refused_before_any_call(tmp_path: Path) -> None:
    runbook = RUNBOOKS / "rehearsal.yaml"
    done = gpurun("up", runbook, "--cap", "0.5", "--yes", home=tmp_path, code=4)
    assert "0.5" in done.stderr
    assert list(tmp_path.iterdir()) == []  # not even the local cloud was started


def test_up_without_a_gpu_is_refused_before_the_local_cloud_is_started(tmp_path: Path) -> None:
    done = gpurun("up", RUNBOOKS / "gpu-smoke.yaml", home=tmp_path, code=3)
    assert "job s1: pins unsloth need a GPU: this runbook can only be run with" in done.stderr
    assert "--cloud aws" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cap", ["0", "-1", "forty", "nan", "inf", "1e30"])
def test_a_cap_that_is_no_amount_is_refused_by_name(tmp_path: Path, cap: str) -> None:
    runbook = RUNBOOKS / "rehearsal.yaml"
    done = gpurun("up", runbook, f"--cap={cap}", home=tmp_path, code=2)
    assert "--cap" in done.stderr


def test_a_cloud_that_there_is_not_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    done = gpurun("plan", RUNBOOKS / "smoke.yaml", "--cloud", "gcp", home=tmp_path, code=2)
    words = " ".join(done.stderr.split())
    assert "there is no cloud 'gcp': local rehearses on this machine and costs nothing" in words
    assert "with --cloud local" in words


def test_without_credentials_nothing_is_asked_of_aws(tmp_path: Path) -> None:
    runbook = RUNBOOKS / "gpu-proof.yaml"
    done = gpurun("up", runbook, "--cloud", "aws", "--yes", home=tmp_path, code=6)
    assert "credentials" in done.stderr.lower()


def test_spending_is_never_the_default_answer(tmp_path: Path) -> None:
    done = gpurun("up", RUNBOOKS / "gpu-proof.yaml", "--cloud", "aws", home=tmp_path, code=17)
    assert "--yes" in done.stderr


def test_a_missing_local_cloud_is_named_with_the_command_that_starts_it(tmp_path: Path) -> None:
    done = gpurun("status", "rehearsal-261129-193045-k7qm", home=tmp_path, code=15)
    assert "gpurun cloud start" in done.stderr


def test_a_script_can_ask_whether_the_local_cloud_runs(tmp_path: Path) -> None:
    told = gpurun("cloud", "status", home=tmp_path, code=15)
    assert (told.stdout, "gpurun cloud start" in told.stderr) == ("", True)
    assert gpurun("cloud", "status", "--json", home=tmp_path, code=15).stdout == "null\n"


@pytest.mark.parametrize("run_id", ["nonsense", "../../etc", "a'$(reboot)-261129-193045-abcd"])
def test_what_is_no_run_id_is_refused(tmp_path: Path, run_id: str) -> None:
    gpurun("pull", run_id, home=tmp_path, code=9)


def test_an_unknown_command_is_a_usage_error(tmp_path: Path) -> None:
    gpurun("lunch", home=tmp_path, code=2)
