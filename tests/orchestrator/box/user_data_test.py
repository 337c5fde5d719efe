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

from orchestrator.box.deadline import lived_s
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

    def plan(self, *, sleep_s: float = 0, began_s_ago: float = 0, loss_bound: str = "2s") -> Plan:
        path = self.folder / "test.yaml"
        text = RUNBOOK.replace("SLEEP", str(sleep_s))
        path.write_text(text.replace("loss_bound: 2s", f"loss_bound: {loss_bound}"))
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

    def boot(self, script: str, **env: str) -> subprocess.Popen[bytes]:
        path = self.folder / "user-data.sh"
        path.write_text(script)
        return self._run(["bash", "--noprofile", "--norc", str(path)], env)

    def boot_again(self, **env: str) -> subprocess.Popen[bytes]:
        """Pull the plug, then boot as a later boot does: from what the first one left behind."""
        self.pull_the_plug()
        return self._run(["bash", str(self.rig.root / "user-data")], env)

    def pull_the_plug(self) -> None:
        self.rig.clean_up()
        if self.process:
            self.process.wait()

    def boot_in(self, prepare: str, script: str, **env: str) -> subprocess.Popen[bytes]:
        """Boot with mounts of the box's own."""
        path = self.folder / "user-data.sh"
        path.write_text(script)
        apart = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
        if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
            pytest.skip("no mount namespace here")
        return self._run([*apart, "bash", "-euc", f'{prepare}\nexec bash "{path}"'], env)

    def _run(self, argv: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
        off = str(self.rig.poweroff_script())
        base = self.rig.environment() | {
            "GPURUN_ROOT": str(self.rig.root),
            "GPURUN_POWEROFF": off,
            "GPURUN_SSH_HOST_KEY": str(self.folder / "host-key"),
            "PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin",
        }
        self.process = subprocess.Popen(argv, env=base | env, start_new_session=True)
        return self.process

    def tool(self, name: str, text: str) -> str:
        """A PATH on which `name` is this script."""
        folder = self.folder / "tools"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
        return f"{folder}:{sys.base_prefix}/bin:/usr/bin:/bin"

    def clock(self, seconds: int) -> str:
        """A PATH on which the wall clock is so far ahead."""
        return self.tool("date", f"echo $(($(/usr/bin/date +%s) + {seconds}))")

    @property
    def console(self) -> str:
        return (self.rig.read("boxes/l4/console.log") or b"").decode()


@pytest.fixture
def machine(rig: Rig, tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(rig, tmp_path)
    yield machine
    machine.pull_the_plug()


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
    plan = machine.plan(sleep_s=60, began_s_ago=88)
    ends_at = plan.box(BOX).poweroff_at.timestamp()
    process = machine.boot("set -x\n" + machine.script(plan, "0" * 64))
    until(lambda: (machine.rig.root / "fetch.py").exists())
    os.killpg(process.pid, signal.SIGKILL)
    assert time.time() < ends_at
    assert not machine.rig.off.exists()
    until(machine.rig.off.exists)
    assert int(ends_at) <= int(machine.rig.off.read_text().split()[0]) <= ends_at + 3


def test_a_wall_clock_that_is_years_slow_doesnt_keep_a_box_alive(machine: Machine) -> None:
    plan = machine.plan()
    script = machine.script(plan, "0" * 64)
    ends_at, began = int(plan.box(BOX).poweroff_at.timestamp()), time.time()
    slow = script.replace(f"end_at={ends_at} limit_s=100", f"end_at={ends_at + 10**8} limit_s=2")
    assert slow != script
    machine.boot(slow)
    until(machine.rig.off.exists)
    assert 1 <= int(machine.rig.off.read_text().split()[0]) - began <= 6


def waiting(machine: Machine) -> tuple[str, int]:
    """A script that has ten seconds to live and waits for a payload, and when it ends."""
    plan = machine.plan(began_s_ago=90)
    return machine.script(plan, "0" * 64), int(plan.box(BOX).poweroff_at.timestamp())


def test_a_box_that_boots_again_ends_when_it_was_to_end(machine: Machine) -> None:
    script, ends_at = waiting(machine)
    machine.boot(script)
    until(lambda: (machine.rig.root / "fetch.py").exists())
    machine.boot_again()
    until(machine.rig.off.exists)
    assert ends_at <= int(machine.rig.off.read_text().split()[0]) <= ends_at + 3


def test_no_clock_that_is_set_back_makes_a_box_that_boots_again_live_longer(
    machine: Machine,
) -> None:
    script, ends_at = waiting(machine)
    limited = script.replace(f"end_at={ends_at} limit_s=100", f"end_at={ends_at} limit_s=20")
    assert limited != script
    began, slow = time.time(), machine.clock(-7200)
    machine.boot(limited, PATH=slow)
    lived = machine.rig.root / "lived"
    until(lambda: lived.exists() and lived.read_text())
    assert 0 <= lived_s(machine.rig.root) <= time.time() - began
    until(lambda: time.time() - began >= 5)
    machine.boot_again(PATH=slow)
    until(machine.rig.off.exists)
    assert 10 <= time.time() - began <= 18, "the time before counts, rounded up to ten seconds"


def test_a_clock_that_is_set_ahead_shortens_a_life(machine: Machine) -> None:
    script, _ = waiting(machine)
    machine.boot(script, PATH=machine.clock(7200))
    until(machine.rig.off.exists, 5)


def test_a_box_that_can_write_nothing_ends_at_once(machine: Machine) -> None:
    script, _ = waiting(machine)
    nowhere = machine.folder / "file"
    nowhere.touch()
    machine.boot(script, GPURUN_ROOT=str(nowhere / "gpurun"))
    until(machine.rig.off.exists, 5)


def test_a_full_disk_keeps_no_box_alive(machine: Machine) -> None:
    script, ends_at = waiting(machine)
    disk = machine.folder / "disk"
    disk.mkdir()
    fill = f'(sleep 2; head -c 9M /dev/zero >"{disk}/fill" || :; echo >"{machine.folder}/full") &'
    machine.boot_in(
        f'mount -t tmpfs -o size=256k tmpfs "{disk}"\n{fill}', script, GPURUN_ROOT=str(disk)
    )
    until((machine.folder / "full").exists)
    assert not machine.rig.off.exists()
    until(machine.rig.off.exists)
    assert ends_at <= int(machine.rig.off.read_text().split()[0]) <= ends_at + 3


def test_a_power_off_that_hangs_is_followed_by_the_hard_one(machine: Machine) -> None:
    script, ends_at = waiting(machine)
    hangs = machine.folder / "hangs"
    hangs.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$(date +%s)" >>"{machine.rig.off}"\nexec sleep 1000\n'
    )
    hangs.chmod(0o755)
    machine.boot(script.replace("sleep 60", "sleep 2"), GPURUN_POWEROFF=str(hangs))
    until(lambda: machine.rig.off.exists() and machine.rig.off.read_text().count("\n") >= 2)
    first, second = machine.rig.off.read_text().split()[:2]
    assert ends_at <= int(first) <= ends_at + 3
    assert int(second) <= ends_at + 6


def test_a_job_goes_on_after_its_box_boots_again_and_the_payload_isnt_fetched_twice(
    machine: Machine,
) -> None:
    plan = machine.plan(sleep_s=3)
    payload = machine.upload(plan)
    machine.boot(machine.script(plan, payload.sha256))
    until(lambda: machine.rig.status("train").get("state") == "running", 40)
    key = f"runs/{RUN}/payload/{payload.sha256}.tar.gz"
    machine.rig.cloud.s3.delete_object(Bucket=BUCKET, Key=key)
    booted_at = (machine.rig.root / "booted-at").read_text()
    machine.boot_again()
    until(machine.rig.off.exists, 40)
    status = machine.rig.status("train")
    assert (status["state"], status["attempt"]) == ("done", 2)
    assert (machine.rig.root / "booted-at").read_text() == booted_at
    assert machine.console.count("booted; ends at") == 2


def agents(machine: Machine) -> list[int]:
    """The agents that run in this box now."""
    root = str(machine.rig.root).encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"orchestrator.box" in words and root in words and b"setsid" not in words:
            found.append(int(entry.name))
    return found


def test_a_box_whose_agent_is_killed_again_and_again_commits_what_lies_there_and_ends(
    machine: Machine,
) -> None:
    plan = machine.plan(sleep_s=90, loss_bound="1h")
    machine.boot(machine.script(plan, machine.upload(plan).sha256))
    log = machine.rig.root / "console.log"
    out = machine.rig.root / "jobs" / "train" / "work" / "out" / "x"
    for attempt in (1, 2, 3):
        until(out.exists, 40)
        out.unlink()
        until(lambda: len(agents(machine)) == 1)
        assert not machine.rig.manifests("train")
        (out.parent / f"kept-{attempt}").write_text("y")
        os.kill(agents(machine)[0], signal.SIGKILL)
        until(lambda n=attempt: f"agent {n} died" in log.read_text())  # type: ignore[misc]
    until(machine.rig.off.exists, 40)
    status = machine.rig.status("train")
    assert (status["state"], status["attempt"]) == ("cut", 3)
    assert status["reason"].startswith("the box's agent died again and again")
    final = machine.rig.manifests("train")[-1]
    assert final["final"]
    assert {"out/kept-1", "out/kept-2", "out/kept-3"} <= final["files"].keys()
    assert "has lived" in machine.console
