"""Large files on their way, and an S3 that hangs, refuses, forgets or lies."""

from __future__ import annotations

import hashlib
import os
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.box import scan as scan_module
from orchestrator.box import store as store_module
from orchestrator.box import streams as streams_module
from orchestrator.box import sync as sync_module
from orchestrator.box.connection import StoreDown
from orchestrator.box.inputs import fetch_input
from orchestrator.box.parts import Paused
from orchestrator.box.rounds import Synced
from orchestrator.box.store import Store

from .desk import Desk
from .rig import BUCKET, PREFIX, REGION, Cloud, until
from .valve import ValveCloud, any_of, puts_of

MB = 1 << 20


@pytest.fixture
def store(valves: ValveCloud, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("AWS_ENDPOINT_URL", valves.url)
    monkeypatch.setenv("AWS_RETRY_MODE", "standard")
    monkeypatch.setattr(store_module, "PART_BYTES", 5 * MB)
    return Store(BUCKET, REGION, PREFIX)


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    return Desk(store, tmp_path / "job")


def parts_left(cloud: Cloud) -> int:
    return len(cloud.s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []))


def of_parts(ask: dict[str, Any]) -> bool:
    return ask["REQUEST_METHOD"] == "PUT" and "uploadId" in ask["QUERY_STRING"]


def in_a_thread(work: Callable[[], Synced]) -> tuple[threading.Thread, list[Synced]]:
    done: list[Synced] = []
    thread = threading.Thread(target=lambda: done.append(work()))
    thread.start()
    return thread, done


def test_an_upload_that_was_told_to_stop_goes_on_with_the_parts_that_are_missing(
    store: Store, valves: ValveCloud, tmp_path: Path
) -> None:
    data = os.urandom(MB) * 22
    path = tmp_path / "large"
    path.write_bytes(data)
    sha256 = _sha256(data)
    for _ in range(4):
        with pytest.raises(Paused):
            store.upload("jobs/train/blobs/x", path, sha256, len(data), stop=lambda: True)
    store.upload("jobs/train/blobs/x", path, sha256, len(data), stop=lambda: True)
    assert store.get("jobs/train/blobs/x") == data
    assert len([size for *_, size in valves.valve.seen if size >= 2 * MB]) == 5
    assert parts_left(valves) == 0


def test_a_paused_upload_of_a_file_that_changed_meanwhile_is_thrown_away(
    desk: Desk, valves: ValveCloud
) -> None:
    desk.write("out/large", os.urandom(MB) * 22)
    desk.sync(gives_way=_after(2))
    assert parts_left(valves) == 1
    desk.write("out/large", os.urandom(MB) * 17)
    assert desk.final().whole
    assert parts_left(valves) == 0
    assert desk.blob(1, "out/large") == (desk.out / "large").read_bytes()


def test_what_an_agent_that_was_killed_left_half_uploaded_is_thrown_away_by_the_next(
    desk: Desk, valves: ValveCloud
) -> None:
    names = {"Bucket": BUCKET, "Key": f"{PREFIX}jobs/train/blobs/{'0' * 64}"}
    upload = valves.s3.create_multipart_upload(**names)["UploadId"]
    valves.s3.upload_part(**names, UploadId=upload, PartNumber=1, Body=b"x" * 5 * MB)
    desk.write("out/large", os.urandom(MB) * 7)
    assert desk.final().whole
    assert parts_left(valves) == 0


def test_an_upload_that_the_bucket_has_forgotten_begins_anew(
    desk: Desk, valves: ValveCloud
) -> None:
    desk.write("out/large", os.urandom(MB) * 22)
    desk.sync(gives_way=_after(2))
    forgotten = valves.valve.refuse(of_parts, "NoSuchUpload", 404)
    with forgotten, pytest.raises(StoreDown):
        desk.final()
    assert desk.complete() == {}
    assert desk.final().whole
    assert desk.complete()["state"] == "done"


def test_the_end_of_time_stops_a_large_upload_and_commits_what_is_there(desk: Desk) -> None:
    (desk.folder / "metrics.jsonl").write_bytes(b"{}\n")
    desk.write("out/small", b"s")
    desk.write("out/large", os.urandom(MB) * 40)
    seen: list[int] = []
    put = desk.store.put

    def counted(key: str, data: bytes) -> None:
        put(key, data)
        seen.append(1)

    desk.store.put = counted  # type: ignore[method-assign]
    synced = desk.sync(final=True, outcome="cut", time_is_up=lambda: len(seen) >= 2)
    assert not synced.whole
    assert desk.listed(1) == {"metrics.jsonl", "out/small"}
    assert desk.complete() == {}


def test_what_has_arrived_is_committed_while_a_large_file_hangs_on_its_way(
    desk: Desk, valves: ValveCloud
) -> None:
    desk.write("out/small", b"s")
    desk.write("out/large", os.urandom(MB) * 4)
    (desk.folder / "metrics.jsonl").write_bytes(b"1\n")
    with valves.valve.hold(puts_of(2 * MB)):
        thread, done = in_a_thread(lambda: desk.sync(clock=time.time, commit_s=0.2))
        assert until(lambda: desk.listed(1)) == {"metrics.jsonl", "out/small"}
        (desk.folder / "metrics.jsonl").write_bytes(b"1\n2\n")
        desk.sync(only_own=True)
        assert desk.blob(2, "metrics.jsonl") == b"1\n2\n"
        assert "out/small" in desk.listed(2)
        assert thread.is_alive()
    thread.join()
    assert done[0].whole
    assert desk.blob(3, "metrics.jsonl") == b"1\n2\n"
    assert "out/large" in desk.listed(3)


def test_a_round_of_all_never_takes_newer_lines_back_and_none_comes_after_the_final_one(
    desk: Desk,
) -> None:
    (desk.folder / "log.txt").write_bytes(b"all\n")
    desk.final()
    assert desk.sync(only_own=True).seq == 1
    (desk.folder / "log.txt").write_bytes(b"all\nlate\n")
    assert desk.sync(only_own=True).seq == 1
    assert desk.complete()["status"]["manifest_seq"] == 1


def test_in_one_thread_everything_happens_in_one_order(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, valves: ValveCloud
) -> None:
    monkeypatch.setattr(sync_module, "STREAMS", 1)
    for name, size in (("b.pt", 9), ("a.json", 5), ("checkpoint-2/m", 7), ("checkpoint-10/m", 8)):
        desk.write(f"out/{name}", b"x" * size)
    (desk.folder / "log.txt").write_bytes(b"1\n")
    (desk.folder / "metrics.jsonl").write_bytes(b"22\n")
    monkeypatch.setattr(streams_module, "ThreadPoolExecutor", None)
    desk.final()
    puts = [size for how, path, size in valves.valve.seen if how == "PUT" and "blobs" in path]
    assert puts == [3, 2, 8, 9, 5, 7]


def test_a_large_file_never_lies_in_memory_as_a_whole(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(300 * MB)
    sha256 = _sha256(bytes(300 * MB))
    tracemalloc.start()
    with pytest.raises(Paused):
        store.upload("jobs/train/blobs/x", path, sha256, 300 * MB, stop=_after(30))
    assert tracemalloc.get_traced_memory()[1] < 180 * MB  # what moto keeps of it included
    tracemalloc.stop()


def test_old_credentials_are_replaced_and_nothing_is_lost(desk: Desk, valves: ValveCloud) -> None:
    desk.write("out/a", b"a")
    expired = iter([True])
    with valves.valve.refuse(lambda ask: next(expired, False), "ExpiredToken", 400):
        assert desk.sync().whole
    assert desk.listed(1) == {"out/a"}


@pytest.mark.parametrize("code, status", [("ServiceUnavailable", 503), ("AccessDenied", 403)])
def test_an_s3_that_refuses_costs_a_round_and_the_next_one_brings_everything(
    desk: Desk, valves: ValveCloud, code: str, status: int
) -> None:
    desk.store = desk.syncer.store = Store(BUCKET, REGION, PREFIX, fast=True)
    desk.syncer = desk.another_agent()
    desk.write("out/a", b"a")
    with valves.valve.refuse(any_of("/blobs/"), code, status), pytest.raises(StoreDown):
        desk.final()
    assert desk.final().whole
    assert desk.complete()["state"] == "done"


def test_other_bytes_than_were_stored_are_never_taken_for_results(
    desk: Desk, valves: ValveCloud, tmp_path: Path
) -> None:
    desk.write("out/a", b"a")
    desk.final()
    with valves.valve.damage(any_of("/blobs/")), pytest.raises(StoreDown):
        fetch_input(desk.store, "train", "out/a", tmp_path / "a")
    fetch_input(desk.store, "train", "out/a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"a"


def _after(times: int) -> Callable[[], bool]:
    looks = iter(range(times))
    return lambda: next(looks, None) is None


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_when_time_is_short_what_a_run_can_go_on_from_goes_first_by_the_byte(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 GB dirty two minutes before the end, a hundredth of the size: 10 of 24 MB get there."""
    monkeypatch.setattr(sync_module, "STREAMS", 1)
    monkeypatch.setattr(scan_module, "SMALL", 256_000)
    sizes = {
        "checkpoint-50/model.safetensors": 4_000_000,
        "checkpoint-50/trainer_state.json": 2,
        "adapter.safetensors": 2_000_000,
        "eval.json": 100_000,
        "checkpoint-40/model.safetensors": 4_000_000,
        "checkpoint-40/trainer_state.json": 2,
        "rollouts.parquet": 10_000_000,
    }
    for name, size in sizes.items():
        desk.write(f"out/{name}", b"{}" + name.encode() * (size // len(name)))
    (desk.folder / "metrics.jsonl").write_bytes(b"{}\n" * 1000)
    (desk.folder / "log.txt").write_bytes(b"tqdm\r" * 800_000)
    sent: list[int] = []
    upload = desk.store.upload

    def counted(key: str, path: Path, sha256: str, size: int, **how: Any) -> None:
        sent.append(size)
        upload(key, path, sha256, size, **how)

    monkeypatch.setattr(desk.store, "upload", counted)
    late = desk.sync(final=True, outcome="cut", time_is_up=lambda: sum(sent) > 10_000_000)
    assert not late.whole
    kept = {name.removeprefix("out/") for name in desk.listed(1)}
    assert kept == {
        *("metrics.jsonl", "checkpoint-50/model.safetensors", "checkpoint-50/trainer_state.json"),
        *("adapter.safetensors", "eval.json"),
        *("checkpoint-40/model.safetensors", "checkpoint-40/trainer_state.json"),
    }
    assert sum(sent) < 10_300_000
