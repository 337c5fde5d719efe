"""Money before results: what would cost more than was reserved isn't uploaded, and is told."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from orchestrator.box.allowance import MANIFESTS, OWN, USED_UP, Allowance
from orchestrator.box.store import Store

from .desk import Desk
from .rig import BUCKET, PREFIX, REGION, Cloud, Rig

KB = 1000


@pytest.fixture
def store(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.url)
    return Store(BUCKET, REGION, PREFIX)


def limited(
    store: Store, folder: Path, upload_bytes: int, upload_objects: int | None = None
) -> Desk:
    return Desk(store, folder, Allowance(upload_bytes, upload_objects, ("train", "other")))


def test_nothing_beyond_the_allowance_is_uploaded_and_the_last_commit_stays(
    store: Store, tmp_path: Path
) -> None:
    desk = limited(store, tmp_path / "job", 100 * KB)
    (desk.folder / "metrics.jsonl").write_bytes(b"{}\n")
    desk.write("out/fits", b"f" * 60 * KB)
    assert desk.sync().whole
    desk.write("out/large", b"l" * 60 * KB)
    (desk.folder / "metrics.jsonl").write_bytes(b"{}\n{}\n")
    synced = desk.final()
    assert (synced.whole, synced.refused) == (False, f"{USED_UP}; left out: out/large")
    assert f"out/large: not kept: {USED_UP}" in synced.notes
    assert desk.listed(2) == {"metrics.jsonl", "out/fits"}
    assert desk.blob(2, "metrics.jsonl") == b"{}\n{}\n"
    assert (desk.manifest(2)["final"], desk.complete()) == (False, {})
    assert desk.held() <= 100 * KB


def test_the_newest_checkpoint_goes_before_older_ones_and_whole_or_not_at_all(
    store: Store, tmp_path: Path
) -> None:
    desk = limited(store, tmp_path / "job", 100 * KB)
    for step in (5, 9):
        desk.write(f"out/checkpoint-{step}/model", b"%d" % step * 30 * KB)
        desk.write(f"out/checkpoint-{step}/optimizer", b"o%d" % step * 12 * KB)
        desk.write(f"out/checkpoint-{step}/trainer_state.json", b"{}")
    desk.final("cut")
    named = {name for name in desk.listed(1) if "checkpoint" in name}
    assert {name.split("/")[1] for name in named} == {"checkpoint-9"}
    assert len(named) == 3


def test_what_other_jobs_and_earlier_agents_put_there_counts(store: Store, tmp_path: Path) -> None:
    store.put("jobs/other/blobs/" + "0" * 64, b"o" * 50 * KB)
    desk = limited(store, tmp_path / "job", 100 * KB)
    desk.write("out/a", b"a" * 30 * KB)
    assert desk.sync().whole
    desk.allowance = Allowance(100 * KB, None, ("train", "other"))
    desk.syncer = desk.another_agent()
    desk.write("out/b", b"b" * 30 * KB)
    assert desk.final().refused
    assert desk.listed(1) == {"out/a"}
    assert len(store.keys("jobs/train/manifests/")) == 1


def test_objects_are_counted_like_bytes_and_the_same_bytes_cost_nothing(
    store: Store, tmp_path: Path
) -> None:
    desk = limited(store, tmp_path / "job", 100 * KB, 100)
    for number in range(90):
        desk.write(f"out/same-{number}", b"same")
    assert desk.sync().whole
    for number in range(150):
        desk.write(f"out/{number}", b"%d" % number)
    assert desk.final().refused
    assert 90 <= len(store.keys("jobs/train/blobs/")) <= 96


def test_a_file_larger_than_all_of_the_allowance_isnt_even_read(
    store: Store, tmp_path: Path
) -> None:
    desk = limited(store, tmp_path / "job", 5_000_000_000)
    sparse = desk.write("out/sparse", b"")
    with sparse.open("wb") as file:
        file.truncate(6_000_000_000)
    sparse.chmod(0o000)
    desk.write("out/small", b"s")
    synced = desk.final()
    assert synced.notes == (f"out/sparse: not kept: {USED_UP}",)
    assert desk.listed(1) == {"out/small"}


def test_what_wasnt_uploaded_after_all_is_given_back() -> None:
    allowance = Allowance(1000, 10)
    assert allowance.take(900, 1)
    assert not allowance.take(100, 1)
    allowance.give_back(900, 1)
    assert allowance.take(900, 1)
    assert allowance.take(90, 1, OWN)
    assert allowance.take(10, 1, MANIFESTS)
    assert not allowance.take(1, 1, MANIFESTS)


def test_what_comes_first_gets_the_room_even_if_it_takes_longer_to_ask() -> None:
    allowance, took = Allowance(1000), list[bool]()
    first, second = allowance.ask(600), allowance.ask(600)
    eager = threading.Thread(target=lambda: took.append(allowance.take(600, 1, ticket=second)))
    eager.start()
    assert allowance.take(600, 1, ticket=first)
    eager.join()
    assert took == [False]


@pytest.mark.slow
def test_a_job_that_made_more_than_it_may_upload_has_failed_and_says_what_to_raise(
    rig: Rig,
) -> None:
    rig.spec |= {"upload_bytes": 200 * KB, "upload_objects": 1000}
    rig.job("big", "echo 1 >out/small; head -c 300000 /dev/urandom >out/large")
    rig.job("after", "true", needs=["big"])
    rig.job("fine", "echo 2 >out/x")
    rig.run()
    status = rig.status("big")
    assert (status["state"], status["exit_code"]) == ("failed", 0)
    assert status["reason"] == f"{USED_UP}; left out: out/large"
    assert "out/large" not in rig.manifests("big")[-1]["files"]
    assert rig.file("big", "out/small") == b"1\n"
    assert rig.read("jobs/big/COMPLETE") is None
    assert rig.status("fine")["state"] == "done"
    assert USED_UP in (rig.root / "console.log").read_text()
