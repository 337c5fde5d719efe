"""A file that grows: only what is new goes up, and what comes home is what was there."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.box import inputs, pieces, sync
from orchestrator.box.allowance import Allowance
from orchestrator.box.commits import Unverified
from orchestrator.box.connection import StoreDown
from orchestrator.box.parts import Changed
from orchestrator.box.pieces import FAN, LEAST, Reading, pieces_of, stay
from orchestrator.box.redact import Redactor
from orchestrator.manifests import read_file, read_metrics
from orchestrator.results import State, pull
from tests.orchestrator.results_test import Objects

from .desk import Desk
from .memory_store import Held, MemoryStore
from .rig import PREFIX, RUN

KB, MB = 1000, 1_000_000
CHANCE = random.Random(7)


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def desk(held: Held, tmp_path: Path) -> Desk:
    return Desk(MemoryStore(held), tmp_path / "job")


@pytest.fixture
def one_stream() -> Iterator[None]:
    with mock.patch.object(sync, "STREAMS", 1):
        yield


def at_home(held: Held, folder: Path) -> Path:
    report = pull(Objects(held.objects), RUN, folder, ["train"])
    assert report.state in (State.COMPLETE, State.PARTIAL)
    return folder / RUN / "train"


def append(path: Path, size: int) -> None:
    with path.open("ab") as file:
        file.write(CHANCE.randbytes(size))


def test_a_chatty_log_goes_up_about_once_however_often_it_is_committed(
    desk: Desk, held: Held, tmp_path: Path, one_stream: None
) -> None:
    log, rounds = desk.folder / "log.txt", 300
    for seq in range(1, rounds + 1):
        append(log, CHANCE.randrange(5 * KB, 20 * KB))
        assert desk.sync().seq == seq
    size = log.stat().st_size
    assert held.put_bytes <= 3 * size + LEAST * rounds
    assert held.put_bytes <= 2 * size  # whole each time it would be 150 times that
    assert len(desk.manifest(rounds)["files"]["log.txt"]["pieces"]) <= 3 * (FAN - 1)
    assert (at_home(held, tmp_path) / "log.txt").read_bytes() == log.read_bytes()


@given(st.lists(st.integers(1, 40 * KB), min_size=1, max_size=1500), st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_no_byte_goes_up_more_than_three_times_and_the_pieces_stay_few(
    appended: list[int], factor: int
) -> None:
    sizes: list[int] = []
    sent = 0
    for more in (size * factor % (5 * MB) + 1 for size in appended):
        kept = stay(sizes, more)
        sizes = [*sizes[:kept], sum(sizes[kept:]) + more]
        sent += sizes[-1]
    size, classes = sum(sizes), 0
    while LEAST * FAN**classes <= size:
        classes += 1
    assert sent <= classes * size + LEAST * len(appended)
    assert len(sizes) <= classes * (FAN - 1) + 1
    assert [*map(pieces._class, sizes)] == sorted(map(pieces._class, sizes), reverse=True)


def test_even_a_byte_each_round_costs_less_than_4_kb_a_round() -> None:
    sizes: list[int] = []
    sent = 0
    for _ in range(20 * KB):
        kept = stay(sizes, 1)
        sizes = [*sizes[:kept], sum(sizes[kept:]) + 1]
        sent += sizes[-1]
    assert sent <= 20 * KB + LEAST * 20 * KB
    assert len(sizes) <= 5


def test_a_log_that_was_cut_short_keeps_the_pieces_that_are_as_they_were(
    desk: Desk, held: Held, one_stream: None
) -> None:
    log = desk.folder / "log.txt"
    for _ in range(3):
        append(log, 50 * KB)
        desk.sync()
    before, sent = pieces_of(desk.manifest(3)["files"]["log.txt"]), held.put_bytes
    with log.open("r+b") as file:
        file.truncate(149 * KB)
    desk.sync()
    after = pieces_of(desk.manifest(4)["files"]["log.txt"])
    assert (after[:2], held.put_bytes - sent) == (before[:2], 49 * KB)
    assert desk.blob(4, "log.txt") == log.read_bytes()


def test_a_log_that_was_written_anew_starts_with_one_piece(
    desk: Desk, held: Held, one_stream: None
) -> None:
    log = desk.folder / "log.txt"
    for _ in range(3):
        append(log, 50 * KB)
        desk.sync()
    log.write_bytes(CHANCE.randbytes(200 * KB))
    desk.sync()
    assert "pieces" not in desk.manifest(4)["files"]["log.txt"]
    assert desk.blob(4, "log.txt") == log.read_bytes()


def test_a_log_that_is_rewritten_between_two_looks_at_it_waits(desk: Desk) -> None:
    log = desk.folder / "log.txt"
    append(log, 20 * KB)
    desk.sync()
    before = pieces_of(desk.manifest(1)["files"]["log.txt"])
    append(log, 20 * KB)
    reading = Reading(before)
    reading.see(log.read_bytes())
    log.write_bytes(CHANCE.randbytes(40 * KB))
    with pytest.raises(Changed):
        reading.pieces(log, 40 * KB)


def test_a_table_that_rests_between_its_lines_goes_up_in_pieces_too(
    desk: Desk, held: Held, one_stream: None
) -> None:
    for rows in range(1, 21):
        desk.write("out/losses.csv", b"0123456789" * KB * rows)
        desk.sync()
    assert held.put_bytes <= 2 * 200 * KB
    assert desk.final().whole
    assert desk.complete()["state"] == "done"


def test_what_goes_up_of_a_log_with_secrets_is_redacted_piece_by_piece(
    held: Held, tmp_path: Path, one_stream: None
) -> None:
    desk = Desk(MemoryStore(held), tmp_path / "job")
    desk.syncer.redact.learn({"HF_TOKEN": "hf_verysecret"})
    log, said = desk.folder / "log.txt", b""
    for number in range(12):
        said += b"line %d " % number * 1000 + b"hf_verysecret\n" * (number % 3) + b"hf_very"
        log.write_bytes(said)
        desk.sync()
        said += b"secret, and " if number % 2 else b" nothing, and "
    log.write_bytes(said)
    desk.final()
    clean = Redactor()
    clean.learn({"HF_TOKEN": "hf_verysecret"})
    assert (at_home(held, tmp_path) / "log.txt").read_bytes() == clean.clean(said)
    assert not [key for key, data in held.objects.items() if b"hf_verysecret" in data]
    assert held.put_bytes <= 3 * len(said)


def test_a_log_of_tens_of_megabytes_doesnt_use_up_what_the_model_needs(
    held: Held, tmp_path: Path, one_stream: None
) -> None:
    desk = Desk(MemoryStore(held), tmp_path / "job", Allowance(40 * MB, None, ("train",)))
    for _ in range(24):
        append(desk.folder / "log.txt", MB // 2)
        desk.sync()
    desk.write("out/model.bin", CHANCE.randbytes(20 * MB))
    assert desk.final().whole


def test_a_piece_that_is_gone_keeps_a_job_from_being_complete_until_it_is_there_again(
    desk: Desk, held: Held, one_stream: None
) -> None:
    for _ in range(3):
        append(desk.folder / "log.txt", 50 * KB)
        desk.sync()
    second = pieces_of(desk.manifest(3)["files"]["log.txt"])[1].sha256
    gone = held.objects.pop(f"{PREFIX}jobs/train/blobs/{second}")
    with pytest.raises(Unverified):
        desk.final()
    assert desk.complete() == {}
    desk.final()
    assert desk.complete()["state"] == "done"
    assert held.objects[f"{PREFIX}jobs/train/blobs/{second}"] == gone


@pytest.mark.parametrize("damage", [b"", b"x" * 50 * KB])
def test_a_damaged_piece_is_never_restored_and_the_rest_of_the_job_is(
    desk: Desk, held: Held, tmp_path: Path, one_stream: None, damage: bytes
) -> None:
    desk.write("out/model", b"weights")
    for _ in range(2):
        append(desk.folder / "log.txt", 50 * KB)
        desk.sync()
    second = pieces_of(desk.manifest(2)["files"]["log.txt"])[1].sha256
    there = held.objects.pop(f"{PREFIX}jobs/train/blobs/{second}")
    if damage:
        held.objects[f"{PREFIX}jobs/train/blobs/{second}"] = damage
    inputs.restore(desk.store, "train", tmp_path / "next")
    assert (tmp_path / "next" / "work" / "out" / "model").read_bytes() == b"weights"
    assert not [*(tmp_path / "next").glob("log.txt*")]
    held.objects[f"{PREFIX}jobs/train/blobs/{second}"] = there
    inputs.restore(desk.store, "train", tmp_path / "next")
    assert (tmp_path / "next" / "log.txt").read_bytes() == (desk.folder / "log.txt").read_bytes()


def test_metrics_in_pieces_are_read_line_by_line_and_known_blobs_arent_asked_for_again(
    desk: Desk, held: Held, one_stream: None
) -> None:
    metrics = desk.folder / "metrics.jsonl"
    for _ in range(4):
        with metrics.open("a") as file:
            file.writelines(f'{{"step": {step}}}\n' for step in range(1000))
        desk.sync()
    bucket, known = Objects(held.objects), dict[str, bytes]()
    assert len(read_metrics(bucket, RUN, "train")) == 4000
    assert read_file(bucket, RUN, "train", "metrics.jsonl", known) == metrics.read_bytes()
    for sha256 in known:
        held.objects.pop(f"{PREFIX}jobs/train/blobs/{sha256}")
    assert read_file(bucket, RUN, "train", "metrics.jsonl", known) == metrics.read_bytes()
    assert read_file(bucket, RUN, "train", "metrics.jsonl") is None


# What may happen to a log between two rounds, with a number that says how much of it.
CHANGES = st.tuples(
    st.sampled_from(["append", "append", "append", "cut", "rewrite", "die", "box", "line cut"]),
    st.integers(1, 300),
)


@given(st.lists(CHANGES, max_size=25), st.binary(min_size=1, max_size=4))
@settings(max_examples=80, deadline=None)
def test_whatever_happens_to_a_log_what_was_there_at_the_last_commit_is_pulled(
    changes: list[tuple[str, int]], noise: bytes
) -> None:
    with tempfile.TemporaryDirectory() as made, _tiny():
        life = _Life(Path(made), noise)
        for what, size in changes:
            life.change(what, size)
        life.check()


def _tiny() -> mock._patch_dict:
    return mock.patch.multiple(pieces, LEAST=16, FAN=3)  # type: ignore[return-value]


class _Life:
    """A log, the agents that come and go, and the bucket."""

    def __init__(self, folder: Path, noise: bytes) -> None:
        self.folder, self.noise, self.boxes, self.count = folder, noise, 1, 0
        self.held = Held()
        self.desk = Desk(MemoryStore(self.held), folder / "box1")
        self.committed: bytes | None = None

    @property
    def log(self) -> Path:
        return self.desk.folder / "log.txt"

    def change(self, what: str, size: int) -> None:
        data = self.log.read_bytes() if self.log.exists() else b""
        self.count += 1
        text = ((b"%d" % self.count + self.noise) * size)[:size]
        if what == "append":
            self.log.write_bytes(data + text)
        elif what == "cut":
            self.log.write_bytes(data[: max(0, len(data) - size)])
        elif what == "rewrite":
            self.log.write_bytes(text)
        elif what == "die":
            self.desk.syncer = self.desk.another_agent()
        elif what == "box":
            self._next_box()
        self._sync(size % 3 if what == "line cut" else None)

    def _next_box(self) -> None:
        self.boxes += 1
        self.desk = Desk(self.desk.store, self.folder / f"box{self.boxes}")
        inputs.restore(self.desk.store, "train", self.desk.folder)
        there = self.log.read_bytes() if self.log.exists() else None
        assert there == self.committed

    def _sync(self, puts_left: int | None) -> None:
        self.held.puts_left = puts_left
        try:
            with mock.patch.object(sync, "STREAMS", 1):
                self.desk.sync()
            self.committed = self.log.read_bytes() if self.log.exists() else None
        except StoreDown:
            pass
        self.held.puts_left = None

    def check(self) -> None:
        if not [key for key in self.held.objects if "/manifests/" in key]:
            return
        got = at_home(self.held, self.folder / "home") / "log.txt"
        assert (got.read_bytes() if got.exists() else None) == self.committed
        assert read_file(Objects(self.held.objects), RUN, "train", "log.txt") == self.committed
