"""iterative/terraform-provider-iterative#306 (quoted in #331): sizes differ after a transfer.

There: a log goes on growing while it's uploaded. What arrives has one byte more or less than what
was announced, and the transfer is called corrupt.
Here: a log and a model grow in the middle of their upload. The manifest names the hash of the
bytes that were really sent: of the log as far as it went when it was read, of the half-written
model none at all until it rests.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.incidents.desks import cloud, desk, shared_cloud
from tests.orchestrator.box.desk import Desk

__all__ = ["cloud", "desk", "shared_cloud"]

LOG, MODEL = "out/train.log", "out/model.bin"
BEFORE, MORE = b"x" * 310, b"x"


@pytest.fixture
def growing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file gets a byte longer between being hashed and being sent, and after."""
    upload = desk.store.upload

    def grow(key: str, path: Path, sha256: str, size: int, **how: Any) -> None:
        with path.open("ab") as file:
            file.write(MORE)
        upload(key, path, sha256, size, **how)
        with path.open("ab") as file:
            file.write(MORE)

    monkeypatch.setattr(desk.store, "upload", grow)


def test_a_manifest_names_the_bytes_that_were_sent(desk: Desk, growing: None) -> None:
    path = desk.write(LOG, BEFORE)
    assert desk.sync().whole
    entry = desk.manifest(1)["files"][LOG]
    stored = desk.blob(1, LOG)
    assert stored == BEFORE
    assert (entry["size"], entry["sha256"]) == (310, hashlib.sha256(BEFORE).hexdigest())
    assert path.stat().st_size == 312


def test_a_half_written_file_is_never_marked_complete(
    desk: Desk, growing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = desk.write(MODEL, BEFORE)
    assert not desk.final().whole
    assert MODEL not in desk.listed(1)
    assert desk.complete() == {}
    monkeypatch.undo()
    assert desk.final().whole
    assert desk.blob(desk.complete()["status"]["manifest_seq"], MODEL) == path.read_bytes()
