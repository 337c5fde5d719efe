"""What a box takes from the bucket: verified, whole, and only what was committed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from orchestrator.box.inputs import InputDamaged, InputMissing, fetch_input, outcome, restore
from orchestrator.box.store import Store

from .rig import BUCKET, PREFIX, REGION, Cloud


@pytest.fixture
def store(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.url)
    return Store(BUCKET, REGION, PREFIX)


def commit(store: Store, files: dict[str, bytes], seq: int = 1) -> None:
    entries = {}
    for name, data in files.items():
        sha256 = hashlib.sha256(data).hexdigest()
        store.put(f"jobs/sft/blobs/{sha256}", data)
        entries[name] = {"sha256": sha256, "size": len(data), "mode": 0o644}
    said = {"format": 1, "job": "sft", "seq": seq, "attempt": 3, "files": entries}
    store.put(f"jobs/sft/manifests/{seq:06d}.json", json.dumps(said).encode())


def test_a_folder_or_a_file_comes_whole_from_the_newest_manifest(
    store: Store, tmp_path: Path
) -> None:
    commit(store, {"out/model/a": b"old"})
    commit(store, {"out/model/a": b"1", "out/model/b/c": b"2", "out/models": b"no"}, seq=2)
    fetch_input(store, "sft", "out/model", tmp_path / "model")
    files = {
        p.relative_to(tmp_path).as_posix(): p.read_bytes()
        for p in tmp_path.rglob("*/*")
        if p.is_file()
    }
    assert files == {"model/a": b"1", "model/b/c": b"2"}
    fetch_input(store, "sft", "out/model/a", tmp_path / "weights")
    assert (tmp_path / "weights").read_bytes() == b"1"


def test_a_damaged_input_never_appears(store: Store, tmp_path: Path) -> None:
    commit(store, {"out/model/a": b"1", "out/model/b": b"2"})
    store.put(f"jobs/sft/blobs/{hashlib.sha256(b'2').hexdigest()}", b"3")
    with pytest.raises(InputDamaged, match="b of sft isn't in the bucket as it was committed"):
        fetch_input(store, "sft", "out/model", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_job_goes_on_without_the_checkpoint_that_the_bucket_has_lost(
    store: Store, cloud: Cloud, tmp_path: Path
) -> None:
    files = {"log.txt": b"log", "out/kept": b"kept", "out/altered": b"as it was"}
    for step in (5, 9):
        files[f"out/checkpoint-{step}/model"] = b"m%d" % step
        files[f"out/checkpoint-{step}/trainer_state.json"] = b'{"step": %d}' % step
    commit(store, files)
    gone = hashlib.sha256(b"m9").hexdigest()
    cloud.s3.delete_object(Bucket=BUCKET, Key=f"{PREFIX}jobs/sft/blobs/{gone}")
    store.put(f"jobs/sft/blobs/{hashlib.sha256(b'as it was').hexdigest()}", b"otherwise")
    assert restore(store, "sft", tmp_path) == 3
    restored = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert restored == {
        *("log.txt", "work/out/kept"),
        *(f"work/out/checkpoint-5/{name}" for name in ("model", "trainer_state.json")),
    }


def test_an_input_that_was_never_committed_is_missing(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputMissing):
        fetch_input(store, "sft", "out/model", tmp_path / "model")
    commit(store, {"out/mode": b"1"})
    with pytest.raises(InputMissing):
        fetch_input(store, "sft", "out/model", tmp_path / "model")


def test_a_manifest_that_names_a_path_outside_is_refused(store: Store, tmp_path: Path) -> None:
    commit(store, {"../../escaped": b"1"})
    with pytest.raises(ValueError, match="leaves its folder"):
        restore(store, "sft", tmp_path / "job")
    assert not list(tmp_path.rglob("escaped"))


def test_a_restored_jobs_checkpoints_are_as_old_as_their_steps(
    store: Store, tmp_path: Path
) -> None:
    commit(store, {f"out/checkpoint-{n}/trainer_state.json": b"{}" for n in (90, 10**20, 20)})
    assert restore(store, "sft", tmp_path) == 3
    folders = sorted((tmp_path / "work" / "out").iterdir(), key=lambda path: path.stat().st_mtime)
    assert [folder.name for folder in folders] == [
        "checkpoint-20",
        "checkpoint-90",
        f"checkpoint-{10**20}",
    ]


def test_a_job_elsewhere_counts_as_done_only_with_its_complete(store: Store) -> None:
    assert outcome(store, "sft") == "waiting"
    store.put("jobs/sft/status.json", b'{"state": "done"}')
    assert outcome(store, "sft") == "syncing"
    store.put("jobs/sft/COMPLETE", b'{"state": "done"}')
    assert outcome(store, "sft") == "done"
    store.put("jobs/sft/COMPLETE", b'{"state": "cut"}')
    assert outcome(store, "sft") == "cut"
