"""The real agent while its S3 hangs, refuses or is gone, or its disk is full."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .rig import BUCKET, Rig, box_spec, until
from .valve import ValveCloud, any_of, puts_of

pytestmark = pytest.mark.slow
MB = 1 << 20
COUNT = (
    'i=0; while [ ! -e out/enough ]; do i=$((i+1)); echo "{\\"step\\": $i}" >>"$GPURUN_METRICS"; '
    "echo line $i; sleep 0.1; done"
)


@pytest.fixture
def rig(tmp_path: Path, valves: ValveCloud) -> Iterator[Rig]:
    root = tmp_path / "box"
    root.mkdir()
    rig = Rig(root, valves, box_spec())
    yield rig
    rig.clean_up()


def steps(rig: Rig, job: str) -> int:
    """The newest committed step."""
    manifests = [m for m in rig.manifests(job) if "metrics.jsonl" in m["files"]]
    if not manifests:
        return 0
    return len(rig.blob(job, manifests[-1]["files"]["metrics.jsonl"]).splitlines())


def listed(rig: Rig, job: str) -> set[str]:
    """What the newest manifest names."""
    manifests = rig.manifests(job)
    return set(manifests[-1]["files"]) if manifests else set()


def enough(rig: Rig, job: str) -> None:
    (rig.root / "jobs" / job / "work" / "out" / "enough").touch()


def test_a_hanging_upload_delays_no_newer_lines_no_other_job_and_no_heartbeat(
    rig: Rig, valves: ValveCloud
) -> None:
    rig.job("a", f"head -c {3 * MB} /dev/urandom >out/large; {COUNT}")
    rig.job("b", COUNT)
    agent = rig.start()
    with valves.valve.hold(puts_of(2 * MB)):
        assert valves.valve.held.wait(20)
        before = steps(rig, "a")
        until(lambda: steps(rig, "a") > before + 10)
        enough(rig, "a")
        until(lambda: steps(rig, "b") > 10)
        beat = rig.json("boxes/l4/heartbeat.json")
        until(lambda: rig.json("boxes/l4/heartbeat.json")["at"] > beat["at"] + 1)
        assert rig.status("a")["state"] == "syncing"
        assert "out/large" not in rig.manifests("a")[-1]["files"]
    enough(rig, "b")
    assert agent.wait(30) == 0
    assert "out/large" in rig.manifests("a")[-1]["files"]
    assert (rig.status("a")["state"], rig.status("b")["state"]) == ("done", "done")


def test_at_the_drain_a_hanging_upload_costs_only_itself(rig: Rig, valves: ValveCloud) -> None:
    rig.job("a", f"head -c {3 * MB} /dev/urandom >out/large; {COUNT}")
    now = time.time()
    rig.spec |= {"drain_at": now + 6, "poweroff_at": now + 20}
    with valves.valve.hold(puts_of(2 * MB)):
        agent = rig.start()
        until(rig.off.exists)
        assert float(rig.off.read_text()) <= now + 20
        valves.valve.held.clear()
        agent.kill()
    log = rig.file("a", "metrics.jsonl").splitlines()
    written = (rig.root / "jobs" / "a" / "metrics.jsonl").read_bytes().splitlines()
    assert log == written, (rig.root / "console.log").read_text()
    assert not rig.manifests("a")[-1]["final"]
    assert rig.read("jobs/a/COMPLETE") is None


def test_what_a_job_saves_at_its_end_doesnt_wait_for_what_hangs_since_before(
    rig: Rig, valves: ValveCloud
) -> None:
    save = (
        "trap 'mkdir out/checkpoint-9; echo {} >out/checkpoint-9/trainer_state.json; exit 0' TERM"
    )
    rig.job("a", f"{save}; head -c {3 * MB} /dev/urandom >out/large; {COUNT}")
    now = time.time()
    rig.spec |= {"drain_at": now + 6, "poweroff_at": now + 40}
    with valves.valve.hold(puts_of(2 * MB)):
        agent = rig.start()
        until(lambda: "out/checkpoint-9/trainer_state.json" in listed(rig, "a"), 40)
        agent.kill()
    assert "out/large" not in rig.manifests("a")[-1]["files"]


@pytest.mark.parametrize("code, status", [("SlowDown", 503), ("AccessDenied", 403)])
def test_an_s3_that_refuses_to_the_end_keeps_no_deadline_from_being_kept(
    rig: Rig, valves: ValveCloud, code: str, status: int
) -> None:
    rig.job("a", COUNT)
    now = time.time()
    rig.spec |= {"drain_at": now + 5, "poweroff_at": now + 12}
    with valves.valve.refuse(any_of(""), code, status):
        agent = rig.start()
        until(rig.off.exists)
        agent.kill()
    assert now + 5 <= float(rig.off.read_text()) <= now + 13
    assert rig.manifests("a") == []


def test_a_bucket_that_was_deleted_keeps_no_deadline_from_being_kept(
    rig: Rig, valves: ValveCloud
) -> None:
    rig.job("a", COUNT)
    now = time.time()
    rig.spec |= {"drain_at": now + 6, "poweroff_at": now + 13}
    agent = rig.start()
    until(lambda: rig.manifests("a"))
    listed = valves.s3.list_objects_v2(Bucket=BUCKET)["Contents"]
    with valves.valve.refuse(any_of(f" /{BUCKET}"), "NoSuchBucket", 404):
        until(rig.off.exists)
        assert agent.wait(30) == 0
    assert now + 6 <= float(rig.off.read_text()) <= now + 14
    assert listed


def may_mount() -> bool:
    """Whether this user may mount something in a namespace of its own."""
    tool = shutil.which("unshare")
    words = ("--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt")
    return bool(tool) and not subprocess.run([str(tool), *words], capture_output=True).returncode


@pytest.mark.skipif(not may_mount(), reason="no mount namespace for this user")
def test_a_full_disk_costs_no_results_that_are_on_it(rig: Rig) -> None:
    rig.shrink_disk(3000)
    fill = "echo made >out/made; cat /dev/zero >out/fill; echo after >>out/made"
    rig.job("a", f"{fill}; exit 1", retries=0)
    rig.job("b", "true")
    agent = rig.start()
    assert agent.wait(60) == 0
    assert rig.file("a", "out/made").startswith(b"made\n")
    assert len(rig.file("a", "out/fill")) > MB
    assert rig.manifests("a")[-1]["final"]
    assert rig.status("a")["state"] == "failed"
    assert rig.status("b")["state"] in ("done", "failed")
    assert rig.json("boxes/l4/heartbeat.json")["phase"] == "off"
