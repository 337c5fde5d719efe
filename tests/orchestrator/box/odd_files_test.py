"""Files that make trouble elsewhere: many, huge, changing, oddly named."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.box.store import Store

from .desk import Desk
from .rig import BUCKET, PREFIX, REGION, Cloud, Rig

MANY = 10_000
LARGE = 2_500_000_000
"""Bytes: to hash them takes longer than a commit may wait."""


@pytest.fixture
def desk(cloud: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Desk:
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.url)
    return Desk(Store(BUCKET, REGION, PREFIX), tmp_path / "job")


class NoNetwork:
    """A store that takes everything at once, so that only our own work is timed."""

    def __init__(self, store: Store) -> None:
        self.held: dict[str, int] = {}
        store.upload = self.upload  # type: ignore[method-assign]

    def upload(self, key: str, path: Path, sha256: str, size: int, **_: Any) -> None:
        self.held[key] = size


@pytest.mark.timeout(180)
def test_ten_thousand_small_files_cost_seconds_beside_the_network_and_nothing_the_second_time(
    desk: Desk,
) -> None:
    taken = NoNetwork(desk.store)
    desk.out.joinpath("many").mkdir()
    for number in range(MANY):
        (desk.out / "many" / str(number)).write_bytes(b"%d" % number)
    began = time.process_time()
    assert desk.sync(quiet_s=0.0).whole
    assert time.process_time() - began < 60
    assert len(desk.listed(1)) == len(taken.held) == MANY
    began, taken.held = time.process_time(), {}
    assert desk.sync(quiet_s=0.0).seq == 1
    assert time.process_time() - began < 10
    assert taken.held == {}


def test_a_file_of_the_same_length_with_an_older_time_is_uploaded_again(desk: Desk) -> None:
    desk.write("out/metrics.json", b'{"loss": 1}')
    desk.sync()
    desk.write("out/metrics.json", b'{"loss": 2}', age_s=9999)
    desk.sync()
    assert desk.blob(2, "out/metrics.json") == b'{"loss": 2}'


def test_a_log_that_grows_under_the_upload_is_committed_as_the_bytes_that_were_sent(
    desk: Desk,
) -> None:
    log, over = desk.folder / "log.txt", threading.Event()
    log.write_bytes(b"line\n")

    def write() -> None:
        with log.open("ab", buffering=0) as file:
            while not over.is_set():
                file.write(b"line\n" * 50)
                over.wait(0.005)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for seq in range(1, 6):
            assert desk.sync().seq == seq
            blob = desk.blob(seq, "log.txt") or b""
            assert len(blob) == desk.manifest(seq)["files"]["log.txt"]["size"]
            assert set(blob.splitlines()) <= {b"line", b"lin", b"li", b"l"}
    finally:
        over.set()
        writer.join()


def test_an_empty_file_is_a_result_like_any_other(desk: Desk) -> None:
    desk.write("out/empty", b"")
    desk.write("out/checkpoint-5/trainer_state.json", b"{}")
    desk.write("out/checkpoint-5/also empty", b"")
    assert desk.final().whole
    assert desk.blob(1, "out/empty") == desk.blob(1, "out/checkpoint-5/also empty") == b""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sparse_file_of_gigabytes_is_hashed_once_and_keeps_no_other_file_waiting(
    desk: Desk,
) -> None:
    taken = NoNetwork(desk.store)
    with (desk.out / "sparse").open("wb") as file:
        file.truncate(LARGE)
    os.utime(desk.out / "sparse", (1, 1))
    desk.write("out/small", b"s")
    began = time.process_time()
    assert desk.sync(clock=time.time, commit_s=0.5).whole
    first_s = time.process_time() - began
    assert desk.listed(1) == {"out/small"}
    assert desk.listed(2) == {"out/small", "out/sparse"}
    assert LARGE in taken.held.values()
    began = time.process_time()
    desk.sync()
    assert time.process_time() - began < first_s / 4


@pytest.mark.slow
def test_what_is_left_out_is_told_in_the_jobs_status(rig: Rig) -> None:
    rig.job(
        "odd",
        "ln -s /etc/hostname out/link; touch out/fine; touch \"$(printf 'out/\\377')\"",
    )
    rig.run()
    status = rig.status("odd")
    assert status["state"] == "done"
    assert status["reason"].startswith("left out: ")
    assert "not kept" in status["reason"]
    assert status["reason"].endswith(", and 1 more")
    assert set(rig.manifests("odd")[-1]["files"]) == {"log.txt", "out/fine"}
