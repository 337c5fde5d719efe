"""What a sync commits, round by round, against S3's own protocol."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from orchestrator.box import store as store_module
from orchestrator.box.commits import Unverified
from orchestrator.box.connection import StoreDown
from orchestrator.box.parts import Changed
from orchestrator.box.scan import EVERYTHING, checkpoints, missing, scan
from orchestrator.box.store import Store

from .desk import Desk
from .rig import BUCKET, PREFIX, REGION, Cloud


@pytest.fixture
def store(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.url)
    return Store(BUCKET, REGION, PREFIX)


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    return Desk(store, tmp_path / "job")


def test_a_second_sync_of_the_same_files_writes_nothing(desk: Desk) -> None:
    desk.write("out/a", b"a")
    assert desk.sync().seq == 1
    assert desk.sync().seq == 1
    desk.write("out/a", b"b")
    assert desk.sync().seq == 2
    blobs = [key for key, _ in desk.store.keys("jobs/train/blobs/")]
    assert len(blobs) == 2


def test_a_file_that_was_written_a_moment_ago_waits_but_a_log_is_taken_as_it_is(
    desk: Desk,
) -> None:
    (desk.folder / "log.txt").write_bytes(b"line\n")
    desk.write("out/weights.bin", b"half", age_s=0)
    desk.write("out/events.jsonl", b"{}\n", age_s=0)
    assert not desk.sync().whole
    assert desk.listed(1) == {"log.txt", "out/events.jsonl"}
    assert desk.final().whole
    assert "out/weights.bin" in desk.listed(2)


def test_a_file_that_is_being_rewritten_stays_listed_as_it_was(desk: Desk) -> None:
    desk.write("out/best.bin", b"first")
    desk.write("out/other", b"1")
    desk.sync()
    before = desk.manifest(1)["files"]["out/best.bin"]
    desk.write("out/best.bin", b"seco", age_s=0)
    desk.write("out/other", b"2")
    desk.sync()
    assert desk.manifest(2)["files"]["out/best.bin"] == before


def test_a_file_that_changes_under_the_upload_never_becomes_a_blob(desk: Desk) -> None:
    path = desk.write("out/a", b"x")
    with pytest.raises(Changed):
        desk.store.upload("jobs/train/blobs/0", path, "0" * 64, 1)
    assert desk.store.keys("jobs/train/blobs/") == []


def test_a_file_that_grows_while_it_is_uploaded_waits_for_the_next_round(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, upload = desk.write("out/a", b"half"), desk.store.upload

    def slow(key: str, source: Path, sha256: str, size: int, **how: Any) -> None:
        upload(key, source, sha256, size, **how)
        path.write_bytes(b"half and half")

    monkeypatch.setattr(desk.store, "upload", slow)
    assert not desk.sync().whole
    assert desk.store.keys("jobs/train/manifests/") == []
    monkeypatch.undo()


def test_a_large_file_goes_up_in_parts_and_a_changed_one_is_taken_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "PART_BYTES", 5 << 20)
    data = os.urandom(1 << 20) * 37
    path = desk.write("out/large.bin", data)
    assert desk.final().whole
    entry = desk.manifest(1)["files"]["out/large.bin"]
    assert desk.store.get(f"jobs/train/blobs/{entry['sha256']}") == data
    with pytest.raises(Changed):
        desk.store.upload("jobs/train/blobs/0", path, "0" * 64, len(data))
    assert desk.store.get("jobs/train/blobs/0") is None


def test_a_checkpoint_is_listed_whole_or_not_at_all(desk: Desk) -> None:
    desk.write("out/checkpoint-5/model", b"m5")
    desk.write("out/checkpoint-5/trainer_state.json", b"{}")
    desk.write("out/checkpoint-9/model", b"m9")
    desk.sync()
    whole = {"out/checkpoint-5/model", "out/checkpoint-5/trainer_state.json"}
    assert desk.listed(1) == whole
    assert checkpoints(desk.folder, ["out"]) == {"out/checkpoint-5"}
    desk.write("out/checkpoint-9/trainer_state.json", b'{"global_st')
    assert desk.sync().seq == 1
    desk.write("out/checkpoint-9/trainer_state.json", b'{"global_step": 9}')
    desk.sync()
    assert desk.listed(2) == whole | {name.replace("-5", "-9") for name in whole}


def test_a_checkpoint_that_changes_while_it_is_uploaded_waits_for_the_next_round(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.write("out/checkpoint-5/trainer_state.json", b"{}")
    upload = desk.store.upload

    def slow(key: str, source: Path, sha256: str, size: int, **how: Any) -> None:
        upload(key, source, sha256, size, **how)
        desk.write("out/checkpoint-5/optimizer.pt", b"late")

    monkeypatch.setattr(desk.store, "upload", slow)
    assert not desk.sync().whole
    assert desk.store.keys("jobs/train/manifests/") == []
    monkeypatch.undo()
    desk.syncer = desk.another_agent()
    assert desk.sync().whole


def test_what_gets_there_before_the_time_is_up_is_committed_with_whole_checkpoints_only(
    desk: Desk,
) -> None:
    (desk.folder / "metrics.jsonl").write_bytes(b"{}\n")
    for step in (5, 9):
        desk.write(f"out/checkpoint-{step}/model", b"m%d" % step)
        desk.write(f"out/checkpoint-{step}/trainer_state.json", b"{}")
    ticks = iter(range(100))
    # Four looks at the clock: the metrics, and the three that follow in order of worth.
    synced = desk.sync(final=True, outcome="cut", time_is_up=lambda: next(ticks) > 2)
    assert not synced.whole
    assert "metrics.jsonl" in desk.listed(1)
    for step in (5, 9):
        named = [name for name in desk.listed(1) if f"checkpoint-{step}/" in name]
        assert len(named) in (0, 2)
    assert not desk.manifest(1)["final"]
    assert desk.complete() == {}


def test_links_pipes_and_odd_names_are_refused_with_a_note(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (desk.out / "link").symlink_to(tmp_path / "secret")
    (desk.out / "folder").symlink_to(tmp_path)
    os.mkfifo(desk.out / "pipe")
    Path(os.fsdecode(bytes(desk.out) + b"/\xff")).write_text("x")
    desk.write("out/fine", b"1")
    synced = desk.sync()
    assert desk.listed(1) == {"out/fine"}
    assert len(synced.notes) == 4
    outside, notes = scan(desk.folder, ["out/folder"])
    assert outside == []
    assert "a link" in notes[0]


def test_complete_is_written_once_and_only_over_a_cut(desk: Desk) -> None:
    desk.write("out/a", b"a")
    desk.final("cut")
    assert desk.complete()["state"] == "cut"
    assert desk.complete()["status"].items() >= {"step": 7, "manifest_seq": 1}.items()
    desk.syncer = desk.another_agent()
    desk.write("out/a", b"b")
    desk.final("done")
    done = desk.complete()
    assert (done["state"], done["manifest"]) == (
        "done",
        f"{PREFIX}jobs/train/manifests/000002.json",
    )
    desk.syncer = desk.another_agent()
    desk.write("out/a", b"c")
    desk.final("cut")
    assert desk.complete() == done


def test_a_failed_job_commits_its_last_manifest_but_no_complete(desk: Desk) -> None:
    desk.write("out/a", b"a")
    desk.final("failed")
    assert desk.manifest(1)["final"]
    assert desk.complete() == {}


def test_nothing_is_complete_while_a_blob_is_missing_and_the_next_try_heals_it(
    desk: Desk, cloud: Cloud
) -> None:
    desk.write("out/a", b"a")
    desk.sync()
    key = PREFIX + desk.store.keys("jobs/train/blobs/")[0][0]
    cloud.s3.delete_object(Bucket=BUCKET, Key=key)
    with pytest.raises(Unverified):
        desk.final()
    assert desk.complete() == {}
    desk.final()
    assert desk.complete()["state"] == "done"
    assert cloud.s3.head_object(Bucket=BUCKET, Key=key)["ContentLength"] == 1


def test_another_agents_manifests_are_never_overwritten(desk: Desk) -> None:
    desk.write("out/a", b"a")
    other = desk.another_agent()
    desk.sync()
    first = desk.manifest(1)
    desk.write("out/a", b"b")
    desk.syncer, mine = other, desk.syncer
    assert desk.sync().seq == 2
    desk.syncer = mine
    desk.write("out/a", b"c")
    assert desk.sync().seq == 3
    assert desk.manifest(1) == first


def test_an_s3_that_doesnt_answer_is_an_error_that_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    desk = Desk(Store(BUCKET, REGION, PREFIX, fast=True), tmp_path / "job")
    with pytest.raises(StoreDown):
        desk.sync()


def test_checkpoints_of_a_trainer_that_writes_no_marker_are_kept_once_they_rest(
    desk: Desk,
) -> None:
    desk.write("out/checkpoint-5/model.bin", b"m5")
    desk.write("out/checkpoint-9/model.bin", b"m9")
    desk.write("out/checkpoint-9/optimizer.bin", b"o", age_s=0)
    desk.write("out/other/checkpoint-5/trainer_state.json", b"{}")
    desk.write("out/other/checkpoint-9/model", b"half")
    synced = desk.sync()
    assert not synced.whole
    assert synced.notes == ("out/other/checkpoint-9: an incomplete checkpoint, not kept",)
    other = "out/other/checkpoint-5/trainer_state.json"
    assert desk.listed(1) == {"out/checkpoint-5/model.bin", other}
    assert desk.final().whole
    assert "out/other/checkpoint-9/model" not in desk.listed(2)
    assert desk.listed(2) >= {"out/checkpoint-9/model.bin", "out/checkpoint-9/optimizer.bin"}


def test_a_file_that_is_always_being_appended_to_is_kept_as_far_as_it_goes(desk: Desk) -> None:
    desk.write("out/losses.csv", b"1\n", age_s=0)
    desk.write("out/last.bin", b"old", age_s=0)
    desk.sync()
    desk.write("out/losses.csv", b"1\n2\n", age_s=0)
    desk.write("out/last.bin", b"newer", age_s=0)
    desk.sync()
    assert desk.listed(1) == {"out/losses.csv"}
    entry = desk.manifest(1)["files"]["out/losses.csv"]
    assert desk.store.get(f"jobs/train/blobs/{entry['sha256']}") == b"1\n2\n"


def test_one_file_that_cant_be_read_doesnt_cost_the_others(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.write("out/bad", b"1")
    desk.write("out/fine", b"2")
    upload = desk.store.upload

    def broken(key: str, source: Path, sha256: str, size: int, **how: Any) -> None:
        if source.name == "bad":
            raise PermissionError(13, "Permission denied")
        upload(key, source, sha256, size, **how)

    monkeypatch.setattr(desk.store, "upload", broken)
    synced = desk.final()
    assert not synced.whole
    assert synced.notes == ("out/bad: Permission denied",)
    assert desk.listed(1) == {"out/fine"}
    assert desk.complete() == {}


def test_the_whole_work_folder_is_taken_where_that_is_asked_a_namesake_of_the_log_included(
    desk: Desk,
) -> None:
    (desk.folder / "log.txt").write_bytes(b"ours")
    desk.write("out/ckpt.json", b"1")
    desk.write("made/deep/a", b"2")
    desk.write("log.txt", b"theirs")
    assert desk.sync(final=True, outcome="failed", results=EVERYTHING).whole
    assert desk.listed(1) == {"log.txt", "work/log.txt", "out/ckpt.json", "made/deep/a"}
    entry = desk.manifest(1)["files"]["work/log.txt"]
    assert desk.store.get(f"jobs/train/blobs/{entry['sha256']}") == b"theirs"


def test_a_result_path_is_missing_unless_something_is_there(desk: Desk) -> None:
    desk.write("file", b"")
    assert missing(desk.folder, ["out", "file", "oot", "out/deeper"]) == ("oot", "out/deeper")
