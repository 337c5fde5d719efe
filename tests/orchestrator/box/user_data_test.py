"""The rendered script, really run as a plain process, from its first line to the power-off.

Its power-off command only writes a file; nothing here can end the machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.catalog import load_catalog
from orchestrator.payload import Payload, build_payload
from orchestrator.plan import Plan, make_plan
from orchestrator.render import POWEROFF_BY_VARIABLE, render_user_data
from orchestrator.runbook import load_runbook

from .rig import BOX, BUCKET, RUN, Rig, until

pytestmark = pytest.mark.slow

RUNBOOK = """
name: test
cap_usd: 10
regions: [us-east-1]
loss_bound: 2s
pins: none
boxes:
  l4: {instance: g6.4xlarge, hours: 100s, drain: 20s}
jobs:
  train: {box: l4, command: "echo made >out/x; sleep SLEEP"}
"""


@dataclass
class Machine:
    """A rig whose agent is started by user data, as on a box."""

    rig: Rig
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    def plan(self, *, sleep_s: float = 0, began_s_ago: float = 0) -> Plan:
        path = self.folder / "test.yaml"
        path.write_text(RUNBOOK.replace("SLEEP", str(sleep_s)))
        now = datetime.now(UTC) - timedelta(seconds=began_s_ago)
        return make_plan(
            load_runbook(path),
            now=now,
            catalog=load_catalog(),
            cloud="local",
            allow_stale_prices=True,
        )

    def upload(self, plan: Plan) -> Payload:
        payload = build_payload(plan, RUN, BUCKET, host_private="key\n", folder=self.folder)
        key = f"runs/{RUN}/payload/{payload.sha256}.tar.gz"
        self.rig.cloud.s3.put_object(Bucket=BUCKET, Key=key, Body=payload.path.read_bytes())
        return payload

    def script(self, plan: Plan, sha256: str) -> str:
        return render_user_data(
            plan,
            BOX,
            run_id=RUN,
            bucket=BUCKET,
            payload_sha256=sha256,
            poweroff_command=POWEROFF_BY_VARIABLE,
        )

    def boot(self, script: str) -> subprocess.Popen[bytes]:
        path = self.folder / "user-data.sh"
        path.write_text(script)
        off = str(self.rig.poweroff_script())
        env = self.rig.environment() | {
            "GPURUN_ROOT": str(self.rig.root),
            "GPURUN_POWEROFF": off,
            "GPURUN_SSH_HOST_KEY": str(self.folder / "host-key"),
            "PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin",
        }
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", str(path)], env=env, start_new_session=True
        )
        return self.process

    @property
    def console(self) -> str:
        return (self.rig.read("boxes/l4/console.log") or b"").decode()


@pytest.fixture
def machine(rig: Rig, tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(rig, tmp_path)
    yield machine
    rig.clean_up()
    if machine.process:
        machine.process.wait()


def test_a_box_boots_runs_its_job_commits_it_and_powers_itself_off(machine: Machine) -> None:
    plan = machine.plan()
    machine.boot(machine.script(plan, machine.upload(plan).sha256))
    until(machine.rig.off.exists, 40)
    assert machine.rig.file("train", "out/x") == b"made\n"
    assert machine.rig.json("jobs/train/COMPLETE")["state"] == "done"
    assert (machine.folder / "host-key").read_text() == "key\n"
    assert (machine.folder / "host-key").stat().st_mode & 0o777 == 0o600
    assert "train: done" in machine.console


def test_a_box_whose_payload_isnt_there_says_so_and_powers_off(machine: Machine) -> None:
    script = machine.script(machine.plan(), "0" * 64)
    machine.boot(script.replace("s3 get 600", "s3 get 1"))
    until(machine.rig.off.exists)
    assert "HTTP Error 404" in machine.console
    assert "user data ends with status 1" in machine.console


def test_a_box_whose_agent_dies_again_and_again_says_so_and_powers_off(machine: Machine) -> None:
    plan = machine.plan()
    script = machine.script(plan, machine.upload(plan).sha256)
    machine.boot(script.replace("\nfor try in", '\nrm "$GPURUN_ROOT"/boxes/l4.json\nfor try in'))
    until(machine.rig.off.exists, 40)
    assert "agent 3 died" in machine.console
    assert "SpecError" in machine.console


def test_the_power_off_comes_in_time_when_everything_that_watches_is_dead(
    machine: Machine,
) -> None:
    plan = machine.plan(sleep_s=60, began_s_ago=93)
    ends_at = plan.box(BOX).poweroff_at.timestamp()
    process = machine.boot("set -x\n" + machine.script(plan, "0" * 64))
    until(lambda: (machine.rig.root / "fetch.py").exists())
    os.killpg(process.pid, signal.SIGKILL)
    assert time.time() < ends_at
    assert not machine.rig.off.exists()
    until(machine.rig.off.exists)
    assert int(ends_at) <= int(machine.rig.off.read_text()) <= ends_at + 3


def test_a_wall_clock_that_is_years_slow_doesnt_keep_a_box_alive(machine: Machine) -> None:
    plan = machine.plan()
    script = machine.script(plan, "0" * 64)
    ends_at, began = int(plan.box(BOX).poweroff_at.timestamp()), time.time()
    slow = script.replace(f"end_at={ends_at} limit_s=100", f"end_at={ends_at + 10**8} limit_s=2")
    assert slow != script
    machine.boot(slow)
    until(machine.rig.off.exists)
    assert 1 <= int(machine.rig.off.read_text()) - began <= 6
