"""A job's folder with a syncer at work on it, and what it has put into the bucket."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from orchestrator.box.allowance import Allowance
from orchestrator.box.pieces import pieces_of
from orchestrator.box.rounds import Round, Synced
from orchestrator.box.store import Store
from orchestrator.box.sync import Syncer

from .rig import RUN


class Desk:
    """A job's folder and its syncer."""

    def __init__(self, store: Store, folder: Path, allowance: Allowance | None = None) -> None:
        self.store, self.folder, self.out = store, folder, folder / "work" / "out"
        self.allowance = allowance or Allowance()
        self.out.mkdir(parents=True)
        self.syncer = self.another_agent()

    def another_agent(self) -> Syncer:
        return Syncer(self.store, RUN, "train", self.folder, self.allowance)

    def write(self, name: str, data: bytes, age_s: float = 60) -> Path:
        path = self.folder / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (time.time() - age_s,) * 2)
        return path

    def sync(self, **changes: Any) -> Synced:
        base: dict[str, Any] = {"attempt": 1, "step": 7, "final": False, "outcome": ""}
        base |= {"quiet_s": 2.0, "status": {"step": 7}}
        base |= {"now": time.time(), "results": ("out",), "time_is_up": lambda: False}
        return self.syncer.sync(Round(**(base | changes)))

    def final(self, outcome: str = "done") -> Synced:
        return self.sync(final=True, outcome=outcome)

    def manifest(self, seq: int) -> dict[str, Any]:
        said = json.loads(self.store.get(f"jobs/train/manifests/{seq:06d}.json") or b"{}")
        assert isinstance(said, dict)
        return said

    def listed(self, seq: int) -> set[str]:
        return set(self.manifest(seq).get("files", {}))

    def complete(self) -> dict[str, Any]:
        said = json.loads(self.store.get("jobs/train/COMPLETE") or b"{}")
        assert isinstance(said, dict)
        return said

    def blob(self, seq: int, name: str) -> bytes | None:
        """The bytes that a manifest names."""
        pieces = pieces_of(self.manifest(seq)["files"][name])
        blobs = [self.store.get(f"jobs/train/blobs/{piece.sha256}") for piece in pieces]
        return None if None in blobs else b"".join(blob or b"" for blob in blobs)

    def held(self) -> int:
        """Bytes that the bucket holds of the job's blobs and manifests."""
        return sum(
            size
            for kind in ("blobs", "manifests")
            for _, size in self.store.keys(f"jobs/train/{kind}/")
        )
