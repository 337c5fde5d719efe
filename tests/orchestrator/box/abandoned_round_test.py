"""A round that was given up because a request hung: what it brings late changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.box import rounds
from orchestrator.box import sync as sync_module
from orchestrator.box.redact import Redactor
from orchestrator.box.sync import Syncer

from .desk import Desk
from .memory_store import Held, MemoryStore
from .rig import RUN

GROWS, LAST = "rollouts.jsonl", "zz.csv"
LINE = b'{"reward": 1}\n'
SECRET = "a-secret-of-some-length"


class HangingStore(MemoryStore):
    """The first upload of the growing file hangs, until the last file of a later round goes up."""

    def __init__(self) -> None:
        super().__init__(Held())
        self.hangs, self.comes_through = threading.Event(), threading.Event()
        self.hung: threading.Thread | None = None

    def upload(self, key: str, path: Path, *args: Any, **kwargs: Any) -> None:
        if path.name == GROWS and self.hung is None:
            self.hung = threading.current_thread()
            self.hangs.set()
            assert self.comes_through.wait(30)
        if path.name == LAST and self.hung:
            self.comes_through.set()
            self.hung.join(30)
            assert not self.hung.is_alive()
        super().upload(key, path, *args, **kwargs)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> HangingStore:
    monkeypatch.setattr(rounds, "PATIENCE_S", 0.0)
    monkeypatch.setattr(sync_module, "LOOK_S", 0.01)
    return HangingStore()


@pytest.fixture
def desk(store: HangingStore, tmp_path: Path) -> Desk:
    return Desk(store, tmp_path / "job")


def given_up(desk: Desk, data: bytes, **ends: Callable[[], bool]) -> None:
    desk.write(f"out/{GROWS}", data)
    assert not desk.sync(**ends).whole


@pytest.mark.parametrize("why", ["gives_way", "time_is_up"])
def test_what_hung_in_a_round_that_was_given_up_never_replaces_what_is_newer(
    desk: Desk, store: HangingStore, why: str
) -> None:
    given_up(desk, LINE, **{why: store.hangs.is_set})
    desk.write(f"out/{GROWS}", LINE * 5000)
    desk.write(f"out/{LAST}", b"1,2\n")
    assert desk.final().whole
    assert desk.complete()["state"] == "done"
    assert desk.blob(1, f"out/{GROWS}") == LINE * 5000


def test_what_hung_in_a_round_that_was_given_up_never_counts_as_withheld(
    desk: Desk, store: HangingStore
) -> None:
    redact = Redactor()
    redact.learn({"TOKEN": SECRET})
    desk.syncer = Syncer(store, RUN, "train", desk.folder, redact=redact)
    late, read = threading.Event(), redact.read

    def slow(path: Path, *rest: Any) -> Any:
        said = read(path, *rest)
        if path.name == GROWS and not late.is_set():
            late.set()
            store.hung = threading.current_thread()
            assert store.comes_through.wait(30)
        return said

    redact.read = slow  # type: ignore[assignment, method-assign]
    given_up(desk, SECRET.encode() + b"\n", gives_way=late.is_set)
    desk.write(f"out/{GROWS}", LINE)
    desk.write(f"out/{LAST}", b"1,2\n")
    synced = desk.final()
    assert (synced.whole, synced.withheld) == (True, ())
    assert desk.blob(1, f"out/{GROWS}") == LINE
