"""A real box that S3 refuses: told of by the controller, and its results come home over SSH."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import boto3
import pytest
from botocore.config import Config

from .conftest import Desk, run_id_in

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

RUNBOOK = """
name: rescue
cap_usd: 3
regions: [us-east-1]
loss_bound: 4s
pins: none
boxes:
  l4: {instance: g6.4xlarge, hours: 0.1, drain: 20s, cloud_margin: 60s}
jobs:
  train:
    box: l4
    command: python3 trainer.py --steps 100000
    workdir: project
    results: [out]
    hours: 0.02
"""


def client(desk: Desk, service: str) -> Any:
    make: Any = boto3.client  # the stubs take no name that is known only when it runs
    return make(
        service,
        region_name="us-east-1",
        endpoint_url=desk.json("cloud", "status")["url"],
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
        config=Config(proxies={}, s3={"addressing_style": "path"}),
    )


def begun(desk: Desk) -> str:
    """A run whose trainer has made some steps, and whose box may no longer speak to S3."""
    run_id = run_id_in(desk.gpurun("up", desk.write_runbook(RUNBOOK), "--detach"))
    wait = "until grep -qs 'step 20 ' /opt/gpurun/jobs/train/log.txt; do sleep 0.1; done"
    desk.gpurun("ssh", run_id, "l4", "--", wait)
    iam = client(desk, "iam")
    for role in iam.list_roles()["Roles"]:
        if run_id in role["RoleName"]:
            for name in iam.list_role_policies(RoleName=role["RoleName"])["PolicyNames"]:
                iam.delete_role_policy(RoleName=role["RoleName"], PolicyName=name)
    return run_id


def watch(desk: Desk, run_id: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "orchestrator.cli", "resume", run_id],
        cwd=desk.folder,
        env=desk.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_silent_box_is_told_of_and_its_results_come_home_over_ssh_even_without_the_bucket(
    desk: Desk,
) -> None:
    run_id = begun(desk)
    with watch(desk, run_id) as watching:
        assert watching.stdout is not None
        _results_come_home(desk, run_id)
        said, end = "", time.monotonic() + 120
        while f"gpurun rescue {run_id} l4" not in said and time.monotonic() < end:
            said += watching.stdout.readline()
        watching.terminate()
    assert "hasn't been heard of" in said

    bucket = next(b["Name"] for b in client(desk, "s3").list_buckets()["Buckets"])
    for key in (f"runs/{run_id}/run.json", f"control/{run_id}/ssh.json"):
        client(desk, "s3").delete_object(Bucket=bucket, Key=key)
    assert "verified" in desk.gpurun("rescue", run_id, "l4", "--to", "there")
    desk.gpurun("rescue", run_id, "l40s", code=16)
    desk.gpurun("down", run_id, "--now", "seen enough")


def _results_come_home(desk: Desk, run_id: str) -> None:
    committed = desk.json("status", run_id)["jobs"][0]
    said = desk.json("rescue", run_id, "l4", "--to", "here")
    home = desk.folder / "here" / run_id / "rescued" / "l4" / "train"
    assert said["cut"] == ""
    assert {"train/log.txt", "train/out/state.json"} <= said["files"].keys()
    steps = (home / "log.txt").read_text().splitlines()
    assert [int(line.split()[1]) for line in steps[:20]] == list(range(1, 21))
    step, total = json.loads((home / "out" / "state.json").read_text())
    assert total == step * (step - 1) // 2
    assert committed["state"] == "running"
