"""A job's folder is ready once, and taken as ready only when all of it is on the disk."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from pathlib import Path

import pytest

from orchestrator.box.inputs import fetch_input
from orchestrator.box.spec import JobSpec
from orchestrator.box.work import Prepared, prepare

from .memory_store import Held, MemoryStore

FILES = {"out/checkpoint-3/model": b"weights", "out/rollouts.jsonl": b"{}\n"}


@pytest.fixture
def store() -> MemoryStore:
    store, entries = MemoryStore(Held()), {}
    for name, data in FILES.items():
        sha256 = hashlib.sha256(data).hexdigest()
        store.put(f"jobs/train/blobs/{sha256}", data)
        entries[name] = {"sha256": sha256, "size": len(data), "mode": 0o644}
    said = {"format": 1, "job": "train", "seq": 1, "attempt": 2, "files": entries}
    store.put("jobs/train/manifests/000001.json", json.dumps(said).encode())
    return store


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    (tmp_path / "code.py").write_text("print(1)\n")
    with tarfile.open(tmp_path / "workdir.tar", "w") as packed:
        packed.add(tmp_path / "code.py", "code.py")
    return JobSpec("train", None, "true", {}, (), {}, None, "workdir.tar", ("out",), 0)


def ready(store: MemoryStore, root: Path, spec: JobSpec) -> Prepared:
    return prepare(store, root, spec, frozenset())


def work_of(root: Path) -> dict[str, bytes]:
    work = root / "jobs" / "train" / "work"
    found = (path for path in work.rglob("*") if path.is_file())
    return {path.relative_to(work).as_posix(): path.read_bytes() for path in found}


def test_a_job_goes_on_from_what_it_committed_and_is_made_ready_once(
    store: MemoryStore, spec: JobSpec, tmp_path: Path
) -> None:
    assert ready(store, tmp_path, spec) == Prepared(2, done=None)
    assert work_of(tmp_path) == FILES | {"code.py": b"print(1)\n"}
    (tmp_path / "jobs" / "train" / "work" / "out" / "new").write_bytes(b"1")
    assert ready(store, tmp_path, spec) == Prepared(2, done=None)
    assert "out/new" in work_of(tmp_path)


@pytest.mark.parametrize("left", [b"", b"\0\0", b"two", b"\xff"])
def test_a_note_that_a_reboot_left_unreadable_is_none(
    store: MemoryStore, spec: JobSpec, tmp_path: Path, left: bytes
) -> None:
    ready(store, tmp_path, spec)
    (tmp_path / "jobs" / "train" / "prepared").write_bytes(left)
    (tmp_path / "jobs" / "train" / "work" / "out" / "rollouts.jsonl").write_bytes(b"")
    assert ready(store, tmp_path, spec) == Prepared(2, done=None)
    assert work_of(tmp_path)["out/rollouts.jsonl"] == FILES["out/rollouts.jsonl"]


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Bytes of each inode that the disk is known to have: the test can't cut the power."""
    sync, known = os.fsync, {}

    def noted(descriptor: int) -> None:
        sync(descriptor)
        known[os.fstat(descriptor).st_ino] = os.fstat(descriptor).st_size

    monkeypatch.setattr(os, "fsync", noted)
    return known


def is_on_disk(path: Path, on_disk: dict[int, int]) -> bool:
    return on_disk.get(path.stat().st_ino) == path.stat().st_size


def test_the_note_comes_when_the_disk_has_all_of_the_work(
    store: MemoryStore, spec: JobSpec, tmp_path: Path, on_disk: dict[int, int]
) -> None:
    ready(store, tmp_path, spec)
    job = tmp_path / "jobs" / "train"
    paths = [job / "prepared", *(job / "work" / name for name in work_of(tmp_path))]
    assert [path for path in paths if not is_on_disk(path, on_disk)] == []
    assert [*on_disk][-1] == (job / "prepared").stat().st_ino


def test_an_input_appears_when_the_disk_has_all_of_it(
    store: MemoryStore, tmp_path: Path, on_disk: dict[int, int]
) -> None:
    fetch_input(store, "train", "out", tmp_path / "it")
    found = [path for path in (tmp_path / "it").rglob("*") if path.is_file()]
    assert len(found) == 2
    assert all(is_on_disk(path, on_disk) for path in found)
