"""The agent as a real process, against a real S3 protocol, with a trainer that really dies."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from itertools import groupby

import pytest

from .rig import PREFIX, Rig, until

pytestmark = pytest.mark.slow

TOTAL = sum(range(21))


def test_a_job_runs_to_its_end_and_everything_it_made_is_committed_before_power_off(
    rig: Rig,
) -> None:
    rig.trainer("train", steps=20)
    rig.run()
    final = rig.manifests("train")[-1]
    assert final["final"]
    assert {"log.txt", "metrics.jsonl", "out/total.txt"} <= final["files"].keys()
    assert "out/checkpoint-20/trainer_state.json" in final["files"]
    assert rig.file("train", "out/total.txt") == b"%d" % TOTAL
    status = rig.status("train")
    assert (status["state"], status["attempt"], status["exit_code"]) == ("done", 1, 0)
    assert (status["step"], status["max_steps"]) == (20, 20)
    assert status["metrics"]["total"] == TOTAL
    complete = rig.json("jobs/train/COMPLETE")
    assert complete["manifest"] == f"{PREFIX}jobs/train/manifests/{final['seq']:06d}.json"
    assert rig.json("boxes/l4/heartbeat.json")["phase"] == "off"
    assert b"train: done" in (rig.read("boxes/l4/console.log") or b"")


def test_a_killed_trainer_goes_on_from_its_last_complete_checkpoint_with_the_same_result(
    rig: Rig,
) -> None:
    rig.trainer("train", steps=40)
    agent = rig.start()
    out = rig.root / "jobs" / "train" / "work" / "out"
    until(lambda: (out / "checkpoint-10" / "trainer_state.json").exists())
    half = out / "checkpoint-15"
    half.mkdir(exist_ok=True)
    (half / "trainer_state.json").unlink(missing_ok=True)
    pid = json.loads((rig.root / "jobs" / "train" / "pid").read_text())[0]
    os.killpg(pid, signal.SIGKILL)
    assert agent.wait(30) == 0
    status = rig.status("train")
    assert (status["state"], status["attempt"]) == ("done", 2)
    assert status["metrics"]["total"] == sum(range(41))
    assert b"from step 10" in rig.file("train", "log.txt")


def test_a_job_that_goes_on_failing_fails_with_its_last_words_and_blocks_those_that_need_it(
    rig: Rig,
) -> None:
    rig.job("bad", "echo no luck; exit 7", retries=1)
    rig.job("after", "true", needs=["bad"])
    rig.job("apart", "echo fine >out/x")
    rig.run()
    bad = rig.status("bad")
    assert (bad["state"], bad["attempt"], bad["exit_code"]) == ("failed", 2, 7)
    assert bad["reason"] == "exit status 7: no luck"
    assert rig.manifests("bad")[-1]["final"]
    assert rig.read("jobs/bad/COMPLETE") is None
    assert (rig.status("after")["state"], rig.status("after")["reason"]) == (
        "blocked",
        "bad is failed",
    )
    assert rig.status("apart")["state"] == "done"


def test_a_job_that_ends_well_but_made_its_results_elsewhere_has_failed_and_loses_nothing(
    rig: Rig,
) -> None:
    rig.job("typo", "mkdir deep; echo 1 >deep/a; echo 2 >out/ckpt.json", results=["oot", "out"])
    rig.job("after", "true", needs=["typo"])
    rig.run()
    typo = rig.status("typo")
    assert (typo["state"], typo["attempt"], typo["exit_code"]) == ("failed", 1, 0)
    assert typo["reason"] == ("result path oot was never made; kept the whole work folder instead")
    assert rig.file("typo", "out/ckpt.json") == b"2\n"
    assert rig.file("typo", "deep/a") == b"1\n"
    assert rig.manifests("typo")[-1]["final"]
    assert rig.read("jobs/typo/COMPLETE") is None
    assert rig.status("after")["state"] == "blocked"


def test_a_failed_job_with_none_of_its_results_keeps_all_that_it_made_but_not_with_some(
    rig: Rig,
) -> None:
    rig.job("none", "echo 1 >a; exit 3", results=["oot"], retries=0)
    rig.job("some", "echo 1 >a; echo 2 >out/b; exit 3", results=["oot", "out"], retries=0)
    rig.run()
    listed = {job: set(rig.manifests(job)[-1]["files"]) for job in ("none", "some")}
    assert listed == {
        "none": {"log.txt", "a"},
        "some": {"log.txt", "out/b"},
    }
    assert rig.status("none")["reason"] == "exit status 3"


def test_a_job_that_wrote_beside_an_empty_out_has_failed_and_one_that_wrote_nothing_is_done(
    rig: Rig,
) -> None:
    rig.job("beside", "echo 1 >model.bin")
    rig.job("nothing", "echo fine")
    rig.run()
    beside = rig.status("beside")
    assert (beside["state"], beside["exit_code"]) == ("failed", 0)
    assert beside["reason"] == "result path out was never made; kept the whole work folder instead"
    assert rig.file("beside", "model.bin") == b"1\n"
    assert rig.status("nothing")["state"] == "done"


def test_at_the_deadline_the_trainer_checkpoints_and_all_of_it_is_committed_as_cut(
    rig: Rig,
) -> None:
    rig.trainer("train", steps=9999)
    rig.job("never", "true", needs=["train"])
    now = time.time()
    rig.spec |= {"drain_at": now + 5, "poweroff_at": now + 15}
    rig.run()
    assert float(rig.off.read_text()) <= now + 15
    status = rig.status("train")
    assert status["state"] == "cut"
    assert status["ended_at"] >= now + 5
    assert rig.status("never")["state"] == "cut"
    state = rig.file("train", f"out/checkpoint-{status['step']}/trainer_state.json")
    assert json.loads(state)["step"] == status["step"]
    assert rig.manifests("train")[-1]["final"]
    assert rig.json("jobs/train/COMPLETE")["state"] == "cut"


def test_a_trainer_that_ignores_the_deadline_is_killed_in_time_for_the_flush(rig: Rig) -> None:
    rig.job("deaf", "trap '' TERM; echo kept >out/kept.txt; while :; do sleep 0.1; done")
    now = time.time()
    rig.spec |= {"drain_at": now + 3, "poweroff_at": now + 9}
    rig.run()
    assert float(rig.off.read_text()) <= now + 9
    assert rig.status("deaf")["reason"].startswith("told to stop at the deadline, then killed")
    assert rig.file("deaf", "out/kept.txt") == b"kept\n"


def test_a_half_written_checkpoint_is_in_no_manifest(rig: Rig) -> None:
    script = (
        "mkdir -p out/checkpoint-5 out/checkpoint-6; echo w >out/checkpoint-5/model.safetensors;"
        "echo w >out/checkpoint-6/model.safetensors; echo '{\"step\": 5' >out/checkpoint-5/"
        "trainer_state.json; echo '{}' >out/checkpoint-6/trainer_state.json;"
        "ln -s /etc/hostname out/link; mkfifo out/pipe; sleep 3"
    )
    rig.job("train", script)
    rig.run()
    named = {name for manifest in rig.manifests("train") for name in manifest["files"]}
    assert {"out/checkpoint-6/model.safetensors", "out/checkpoint-6/trainer_state.json"} <= named
    assert not [name for name in named if "checkpoint-5" in name]
    assert not {"out/link", "out/pipe"} & named
    assert "out/link: a link, not kept" in (rig.root / "console.log").read_text()


def test_an_s3_that_is_away_for_a_while_costs_nothing_but_time(rig: Rig) -> None:
    rig.trainer("train", steps=60)
    agent = rig.start()
    until(lambda: rig.manifests("train"))
    rig.cloud.unplug()
    try:
        work = rig.root / "jobs" / "train" / "work" / "out"
        until((work / "total.txt").exists)
        until(lambda: "StoreDown" in (rig.root / "console.log").read_text())
        assert not rig.off.exists()
    finally:
        rig.cloud.plug_in()
    assert agent.wait(30) == 0
    assert rig.file("train", "out/total.txt") == b"%d" % sum(range(61))
    assert rig.status("train")["state"] == "done"


def test_an_s3_that_comes_back_in_the_last_seconds_of_the_drain_still_gets_everything(
    rig: Rig,
) -> None:
    rig.trainer("train", steps=9999)
    now = time.time()
    rig.spec |= {"drain_at": now + 10, "poweroff_at": now + 30}
    agent = rig.start()
    until(lambda: rig.status("train").get("step"))
    rig.cloud.unplug()
    until(lambda: time.time() >= now + 18)
    rig.cloud.plug_in()
    assert agent.wait(40) == 0
    assert float(rig.off.read_text()) <= now + 30
    status = rig.status("train")
    state = rig.file("train", f"out/checkpoint-{status['step']}/trainer_state.json")
    assert json.loads(state)["step"] == status["step"]
    assert rig.json("jobs/train/COMPLETE")["state"] == "cut"


def test_a_second_agent_goes_on_where_a_killed_one_stopped(rig: Rig) -> None:
    rig.trainer("train", steps=60)
    first = rig.start()
    until(lambda: len(rig.manifests("train")) > 1)
    first.kill()
    first.wait()
    before = {m["seq"]: m for m in rig.manifests("train")}
    rig.run()
    after = {m["seq"]: m for m in rig.manifests("train")}
    assert {seq: after[seq] for seq in before} == before
    assert rig.status("train")["metrics"]["total"] == sum(range(61))
    assert rig.status("train")["attempt"] == 2
    assert rig.file("train", "log.txt").count(b"from step") == 2
    lines = rig.file("train", "metrics.jsonl").splitlines()
    writers = [pid for pid, _ in groupby(json.loads(line)["pid"] for line in lines)]
    assert len(writers) == 2, "the first trainer was still at work"


def test_a_new_box_goes_on_from_what_the_lost_one_committed(rig: Rig) -> None:
    rig.trainer("train", steps=60)
    rig.start()
    until(
        lambda: any("out/checkpoint-10/" in n for m in rig.manifests("train") for n in m["files"])
    )
    rig.clean_up()
    for path in (rig.root / "jobs", rig.root / "console.log"):
        path.rename(rig.root.parent / f"lost-{path.name}")
    rig.run()
    assert rig.status("train")["metrics"]["total"] == sum(range(61))
    assert b"from step 0" in rig.file("train", "log.txt")
    assert rig.file("train", "log.txt").count(b"from step") == 2


def test_a_new_box_leaves_a_job_alone_that_was_done_and_runs_the_next(rig: Rig) -> None:
    rig.trainer("train", steps=20)
    rig.run()
    before = rig.status("train")
    for path in (rig.root / "jobs", rig.off):
        path.rename(rig.root.parent / f"lost-{path.name}")
    inputs = {"total": {"job": "train", "path": "out/total.txt"}}
    rig.job("after", 'cp "$GPURUN_INPUTS/total" out/seen', inputs=inputs)
    rig.run()
    assert rig.status("train") == before | {"at": rig.status("train")["at"]}
    assert rig.file("after", "out/seen") == b"%d" % TOTAL


@pytest.mark.parametrize("word, state", [("done", "done"), ("failed", "blocked")])
def test_a_job_waits_for_another_boxs_job_and_takes_its_results_verified(
    rig: Rig, word: str, state: str
) -> None:
    rig.job(
        "eval",
        'cat "$GPURUN_INPUTS"/model/weights >out/seen',
        needs=["sft"],
        inputs={"model": {"job": "sft", "path": "out/model"}},
    )
    agent = rig.start()
    until(lambda: rig.status("eval").get("state") == "waiting")
    _other_box_commits(rig, word)
    assert agent.wait(30) == 0
    assert rig.status("eval")["state"] == state
    if state == "done":
        assert rig.file("eval", "out/seen") == b"w" * 9


def _other_box_commits(rig: Rig, word: str) -> None:
    sha = hashlib.sha256(b"w" * 9).hexdigest()
    files = {"out/model/weights": {"sha256": sha, "size": 9, "mode": 0o644}}
    manifest = {"format": 1, "run": rig.spec["run"], "job": "sft", "seq": 1, "attempt": 1}
    manifest |= {"at": 0, "step": 1, "final": True, "files": files}
    objects = {
        f"blobs/{sha}": b"w" * 9,
        "manifests/000001.json": json.dumps(manifest).encode(),
        "status.json": json.dumps({"state": word}).encode(),
    }
    if word == "done":
        objects["COMPLETE"] = json.dumps({"state": "done"}).encode()
    for key, data in objects.items():
        rig.cloud.s3.put_object(Bucket="gpurun-test", Key=f"{PREFIX}jobs/sft/{key}", Body=data)


def test_a_host_that_is_being_stopped_drains_at_once(rig: Rig) -> None:
    rig.trainer("train", steps=9999)
    agent = rig.start()
    until(lambda: rig.status("train").get("step"))
    agent.terminate()
    assert agent.wait(20) == 0
    assert rig.status("train")["state"] == "cut"
    assert rig.status("train")["reason"].split(":")[0] == "told to stop"
    assert rig.manifests("train")[-1]["final"]
