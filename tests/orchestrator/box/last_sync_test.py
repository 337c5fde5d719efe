"""What an agent does that is started only to commit what others left behind."""

from __future__ import annotations

import pytest

from .rig import Rig, until

pytestmark = pytest.mark.slow


def left_behind(rig: Rig) -> None:
    """A box whose agent died, with results that nobody has committed."""
    rig.spec |= {"loss_bound_s": 600}
    rig.job("first", "echo 1 >out/first")
    rig.job("train", "echo 2 >out/half; sleep 60")
    rig.job("never", "echo 3 >out/x", needs=["train"])
    agent = rig.start()
    until((rig.root / "jobs" / "train" / "work" / "out" / "half").exists)
    agent.kill()
    agent.wait()


def test_a_last_sync_commits_what_lies_there_starts_nothing_and_ends_the_box(rig: Rig) -> None:
    left_behind(rig)
    assert rig.start("--last-sync").wait(30) == 0
    assert rig.off.exists()
    assert rig.file("train", "out/half") == b"2\n"
    states = {job: rig.status(job)["state"] for job in ("first", "train", "never")}
    assert states == {"first": "done", "train": "cut", "never": "cut"}
    assert rig.status("train")["attempt"] == 1
    assert rig.status("never")["reason"].startswith("the box's agent died again and again before")
    assert not (rig.root / "jobs" / "never" / "work").exists()
    assert rig.json("boxes/l4/heartbeat.json")["phase"] == "off"


def test_a_last_sync_needs_no_note_of_the_agents_that_died(rig: Rig) -> None:
    left_behind(rig)
    (rig.root / "jobs" / "train" / "agent.json").write_text("{")
    assert rig.start("--last-sync").wait(30) == 0
    assert rig.file("train", "out/half") == b"2\n"
    assert rig.status("train")["state"] == "cut"


def test_a_last_sync_whose_s3_is_away_ends_in_the_time_of_a_drain(rig: Rig) -> None:
    left_behind(rig)
    rig.spec |= {"poweroff_at": rig.spec["drain_at"] + 5}
    rig.cloud.unplug()
    try:
        assert rig.start("--last-sync").wait(30) == 0
    finally:
        rig.cloud.plug_in()
    assert rig.off.exists()
