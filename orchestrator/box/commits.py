"""Manifests and COMPLETE: what of a job counts as committed.

One writer at a time: a later manifest never says less than an earlier one knew. Once the final
one stands nothing but a new attempt adds another.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from orchestrator.box.allowance import MANIFESTS, Allowance
from orchestrator.box.pieces import Entry, blobs_of
from orchestrator.box.store import Store

_NAME = re.compile(r".*/(\d{6,})\.json")


class Unverified(Exception):
    """The bucket doesn't hold what the final manifest names; the sync is done again."""


@dataclass(frozen=True)
class Saying:
    """What a manifest and COMPLETE say beside the files. `at` in epoch seconds."""

    attempt: int
    step: int | None
    at: float
    outcome: str
    status: dict[str, Any]
    left_out: tuple[str, ...] = ()
    """What of the results stays on the box for good, in words."""
    withheld: tuple[str, ...] = ()
    """The same of what holds a secret."""


@dataclass
class Commits:
    """The manifests of one job, from whichever agent."""

    store: Store
    run: str
    job: str
    allowance: Allowance
    seq: int = 0
    listed: dict[str, Entry] = field(default_factory=dict)
    """What the newest manifest names."""
    _final_attempt: int | None = None
    _known: bool = False
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def recall(self) -> None:
        """Read the newest manifest that can be read; one that was damaged is passed over.

        Raises StoreDown.
        """
        if self._known:
            return
        keys = [key for key, _ in self.store.keys(f"jobs/{self.job}/manifests/")]
        numbers = {int(match[1]): key for key in keys if (match := _NAME.fullmatch(key))}
        self.seq = max(numbers, default=0)
        for number in sorted(numbers, reverse=True):
            said = _read(self.store.get(numbers[number]))
            if said:
                self.listed = said["files"]
                self._final_attempt = said.get("attempt") if said.get("final") else None
                break
        self._known = True

    def commit(
        self, files: Callable[[], dict[str, Entry]], saying: Saying, *, final: bool, last: bool
    ) -> None:
        """Put a manifest if it would say anything new. `files` is asked once it's our turn.

        `last`: the job is over; without this one what has gone up would be lost, so it goes even
        when there is no allowance for it. Raises StoreDown.
        """
        with self._turn:
            entries, is_final = files(), self._final_attempt == saying.attempt
            if is_final and not (final and entries != self.listed):
                return
            if entries == self.listed and not final:
                return
            while True:
                body = self._body(entries, saying, final)
                if not self.allowance.take(len(body), 1, MANIFESTS):
                    if not last:
                        return
                    self.allowance.spend(len(body), 1)
                self.seq += 1
                if self.store.put_new(self._key(), body):
                    break
            self.listed = entries
            self._final_attempt = saying.attempt if final else None

    def complete(self, saying: Saying, there: dict[str, int]) -> None:
        """COMPLETE says that all there will ever be is in the bucket and was seen there.

        Raises Unverified, StoreDown.
        """
        body = self.store.get(self._key())
        named = blobs_of(self.listed.values())
        missing = [sha256 for sha256, size in named.items() if there.get(sha256) != size]
        if _read(body).get("files") != self.listed or missing:
            self._final_attempt = None
            raise Unverified(f"{self._key()}: {len(missing)} blobs aren't in the bucket")
        if body is not None and saying.outcome in ("done", "cut"):
            self._put_complete(body, saying)

    def _body(self, entries: dict[str, Entry], saying: Saying, final: bool) -> bytes:
        said = {
            "format": 1,
            "run": self.run,
            "job": self.job,
            "seq": self.seq + 1,
            "attempt": saying.attempt,
            "at": saying.at,
            "step": saying.step,
            "final": final,
            "files": entries,
        }
        return json.dumps(said, sort_keys=True).encode()

    def _key(self) -> str:
        return f"jobs/{self.job}/manifests/{self.seq:06d}.json"

    def _put_complete(self, manifest: bytes, saying: Saying) -> None:
        said = {
            "manifest": self.store.prefix + self._key(),
            "sha256": hashlib.sha256(manifest).hexdigest(),
            "at": saying.at,
            "state": saying.outcome,
            "status": saying.status | {"manifest_seq": self.seq, "synced_at": saying.at},
            "left_out": saying.left_out,
            "withheld": saying.withheld,
        }
        key, body = f"jobs/{self.job}/COMPLETE", json.dumps(said).encode()
        if self.store.put_new(key, body):
            return
        before = self.store.get_tagged(key)
        # A job that was cut in an earlier life and has gone on in this one may say so once more.
        if before and json.loads(before[0]).get("state") == "cut":
            self.store.put_over(key, body, before[1])


def _read(data: bytes | None) -> dict[str, Any]:
    try:
        said = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) and isinstance(said.get("files"), dict) else {}
