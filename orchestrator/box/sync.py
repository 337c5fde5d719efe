"""Commits a job's results: blobs by their hash, then a manifest that names them, then COMPLETE.

A manifest only ever names bytes that are in the bucket. A file that changes while it's read is
left for the next round (its last committed version stays listed); a checkpoint is listed whole
or not at all. When the time is up, what did get there is committed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.box.regular import open_regular
from orchestrator.box.scan import Found, Unit, checkpoint_of, scan
from orchestrator.box.store import STREAMS, Changed, Store

Entry = dict[str, Any]
# A larger file that is being written is rather weights than a table of numbers.
APPENDED_BYTES = 64 << 20


class Unverified(Exception):
    """The bucket doesn't hold what the final manifest names; the sync is done again."""


@dataclass(frozen=True)
class Synced:
    """What a sync committed. `whole`: every file that there is, so nothing would be lost now."""

    seq: int | None
    whole: bool
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Round:
    """One sync. `now` is in epoch seconds; once `time_is_up`, what is there is committed."""

    attempt: int
    step: int | None
    final: bool
    outcome: str
    status: dict[str, Any]
    """What COMPLETE repeats, for whoever finds the job done later."""
    results: tuple[str, ...]
    """What to take along, relative to the work folder."""
    now: float
    quiet_s: float
    """How long a file that isn't a log must have rested to be taken along before the end."""
    time_is_up: Callable[[], bool]


@dataclass
class Syncer:
    """Remembers what of a job is in the bucket; a new one finds out by listing."""

    store: Store
    run: str
    job: str
    folder: Path
    _blobs: dict[str, int] | None = None
    _seq: int = 0
    _listed: dict[str, Entry] = field(default_factory=dict)
    _final: bool = False
    _hashes: dict[str, tuple[tuple[int, int, int], str]] = field(default_factory=dict)
    _begins: dict[str, tuple[int, str]] = field(default_factory=dict)
    _unread: list[str] = field(default_factory=list)

    def sync(self, round_: Round) -> Synced:
        """Raises StoreDown, Unverified."""
        self._recall()
        units, notes = scan(self.folder, round_.results)
        entries: dict[str, Entry] = {}
        whole, self._unread = True, []
        with ThreadPoolExecutor(STREAMS) as pool:
            for unit, listed in pool.map(lambda unit: (unit, self._unit(unit, round_)), units):
                entries |= listed if listed is not None else self._kept(unit)
                whole = whole and listed is not None
        final = round_.final and whole
        if entries != self._listed or (final and not self._final):
            self._commit(entries, final, round_)
        if final:
            self._complete(round_)
        return Synced(self._seq or None, whole, (*notes, *self._unread))

    def _recall(self) -> None:
        if self._blobs is not None:
            return
        blobs = self.store.keys(f"jobs/{self.job}/blobs/")
        manifests = self.store.keys(f"jobs/{self.job}/manifests/")
        if manifests:
            self._seq = int(Path(manifests[-1][0]).stem)
            said = json.loads(self.store.get(manifests[-1][0]) or b"{}")
            self._listed, self._final = said.get("files", {}), bool(said.get("final"))
        self._blobs = {key.rpartition("/")[2]: size for key, size in blobs}

    def _unit(self, unit: Unit, round_: Round) -> dict[str, Entry] | None:
        """The unit's entries once its bytes are in the bucket; None when it has to wait."""
        listed = {}
        try:
            for found in unit.files:
                if round_.time_is_up():
                    return None
                if not (unit.marked or round_.final):
                    found = self._at_rest(found, unit, round_)
                listed[found.name] = self._file(found)
        except (Changed, FileNotFoundError):
            return None
        except OSError as error:  # one file that can't be read must not cost the others
            self._unread.append(f"{unit.files[0].name}: {error.strerror or error}")
            return None
        if unit.checkpoint and not self._is_still(unit, round_):
            return None
        return listed

    def _at_rest(self, found: Found, unit: Unit, round_: Round) -> Found:
        """As it may be taken now. Raises Changed while it's being written."""
        if found.grows or round_.now - found.mtime_ns / 1e9 >= round_.quiet_s:
            return found
        if unit.checkpoint or found.size > APPENDED_BYTES or not self._only_grew(found):
            raise Changed(found.name)
        return replace(found, grows=True)

    def _only_grew(self, found: Found) -> bool:
        """What it held a round ago is how it begins now: it's appended to, as a log is."""
        size, sha256 = self._begins.get(found.name, (0, ""))
        self._begins[found.name] = found.size, _sha256(found.path, found.size)
        return 0 < size <= found.size and _sha256(found.path, size) == sha256

    def _file(self, found: Found) -> Entry:
        sha256 = self._hash(found)
        blobs = self._blobs if self._blobs is not None else {}
        if blobs.get(sha256) != found.size:
            self.store.upload(f"jobs/{self.job}/blobs/{sha256}", found.path, sha256, found.size)
            blobs[sha256] = found.size
        if not found.grows and _stamp(found.path) != found.stamp:
            raise Changed(found.name)
        return {"sha256": sha256, "size": found.size, "mode": found.mode}

    def _hash(self, found: Found) -> str:
        stamp, sha256 = self._hashes.get(found.name, (None, ""))
        if stamp != found.stamp:
            sha256 = _sha256(found.path, found.size)
            if not found.grows and _stamp(found.path) != found.stamp:
                raise Changed(found.name)
            self._hashes[found.name] = (found.stamp, sha256)
        return sha256

    def _is_still(self, unit: Unit, round_: Round) -> bool:
        """The checkpoint has the very files that were hashed: none came, went or changed."""
        units, _ = scan(self.folder, round_.results)
        now = {again.checkpoint: again for again in units if again.checkpoint}
        same = now.get(unit.checkpoint or "")
        return same is not None and {f.name: f.stamp for f in same.files} == {
            f.name: f.stamp for f in unit.files
        }

    def _kept(self, unit: Unit) -> dict[str, Entry]:
        """What the last manifest said of a unit that can't be listed anew."""
        if unit.checkpoint:
            before = {n: e for n, e in self._listed.items() if checkpoint_of(n) == unit.checkpoint}
            return before if before.keys() == {found.name for found in unit.files} else {}
        names = [found.name for found in unit.files if found.name in self._listed]
        return {name: self._listed[name] for name in names}

    def _commit(self, entries: dict[str, Entry], final: bool, round_: Round) -> None:
        while True:
            self._seq += 1
            body = _manifest(self.run, self.job, self._seq, entries, final, round_)
            if self.store.put_new(self._key(), body):
                break
        self._listed, self._final = entries, final

    def _key(self) -> str:
        return f"jobs/{self.job}/manifests/{self._seq:06d}.json"

    def _complete(self, round_: Round) -> None:
        """COMPLETE says that all there will ever be is in the bucket and was seen there."""
        body = self.store.get(self._key())
        there = {Path(key).name: size for key, size in self.store.keys(f"jobs/{self.job}/blobs/")}
        named = {entry["sha256"]: entry["size"] for entry in self._listed.values()}
        missing = [sha256 for sha256, size in named.items() if there.get(sha256) != size]
        if body is None or json.loads(body)["files"] != self._listed or missing:
            self._blobs, self._final = None, False
            raise Unverified(f"{self._key()}: {len(missing)} blobs aren't in the bucket")
        if round_.outcome in ("done", "cut"):
            self._put_complete(body, round_)

    def _put_complete(self, manifest: bytes, round_: Round) -> None:
        said = {
            "manifest": self.store.prefix + self._key(),
            "sha256": hashlib.sha256(manifest).hexdigest(),
            "at": round_.now,
            "state": round_.outcome,
            "status": round_.status | {"manifest_seq": self._seq, "synced_at": round_.now},
        }
        key, body = f"jobs/{self.job}/COMPLETE", json.dumps(said).encode()
        if self.store.put_new(key, body):
            return
        before = self.store.get_tagged(key)
        # A job that was cut in an earlier life and has gone on in this one may say so once more.
        if before and json.loads(before[0]).get("state") == "cut":
            self.store.put_over(key, body, before[1])


def _manifest(
    run: str, job: str, seq: int, files: dict[str, Entry], final: bool, round_: Round
) -> bytes:
    said = {
        "format": 1,
        "run": run,
        "job": job,
        "seq": seq,
        "attempt": round_.attempt,
        "at": round_.now,
        "step": round_.step,
        "final": final,
        "files": files,
    }
    return json.dumps(said, sort_keys=True).encode()


def _stamp(path: Path) -> tuple[int, int, int]:
    seen = path.lstat()
    return seen.st_size, seen.st_mtime_ns, seen.st_ino


def _sha256(path: Path, size: int) -> str:
    """Hash of the first `size` bytes. Raises Changed when there are fewer."""
    digest, left = hashlib.sha256(), size
    with open_regular(path) as file:
        while left and (block := file.read(min(left, 1 << 20))):
            digest.update(block)
            left -= len(block)
    if left:
        raise Changed(str(path))
    return digest.hexdigest()
