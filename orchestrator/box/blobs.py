"""A job's files as blobs in the bucket, each under its hash; any number of threads may ask.

A hash is kept with the file's size, mtime and inode, so a file of the same length with an older
mtime is read anew. What is uploaded is counted against the box's allowance before it goes.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.box.allowance import OWN, REST, Allowance, Refused
from orchestrator.box.parts import Changed, Paused, Stop
from orchestrator.box.redact import Redactor, Withheld
from orchestrator.box.regular import open_regular
from orchestrator.box.scan import OWN as OWN_NAMES
from orchestrator.box.scan import Found, Unit
from orchestrator.box.store import Store

Entry = dict[str, Any]
# A larger file that is being written is rather weights than a table of numbers.
APPENDED_BYTES = 64 << 20


@dataclass
class Blobs:
    """Knows what of a job is in the bucket by listing it once."""

    store: Store
    under: str
    """`jobs/<job>/blobs/`."""
    allowance: Allowance
    redact: Redactor = field(default_factory=Redactor)
    _held: dict[str, str | None] = field(default_factory=dict)
    """The secret in each file that was read."""
    _there: dict[str, int] | None = None
    _hashes: dict[str, tuple[tuple[int, int, int, int], str]] = field(default_factory=dict)
    _begins: dict[str, tuple[int, str]] = field(default_factory=dict)
    _turns: dict[str, threading.Lock] = field(default_factory=dict)
    _swept: bool = False

    def recall(self) -> None:
        """Raises StoreDown."""
        self.allowance.recall(self.store)
        if self._there is None:
            self._there = self.seen()

    def doubt(self) -> None:
        """Something isn't there that should be: look again before the next upload."""
        self._there = None

    def seen(self) -> dict[str, int]:
        """Hash and size of what the bucket has now. Raises StoreDown."""
        return {key.rpartition("/")[2]: size for key, size in self.store.keys(self.under)}

    def bring(self, unit: Unit, *, own: bool, stop: Stop, ticket: int = 0) -> dict[str, Entry]:
        """The unit's entries, once all of its bytes are in the bucket.

        Raises Changed, Paused, Refused, Withheld, StoreDown, OSError.
        """
        total = sum(found.size for found in unit.files)
        if self.allowance.is_beyond(total):
            raise Refused(named(unit))
        hashed = [(found, self._hash(found)) for found in unit.files]
        missing = {sha256: found for found, sha256 in hashed if not self._has(sha256, found.size)}
        counted = self._count(unit, list(missing.values()), OWN if own else REST, ticket)
        try:
            for sha256, found in missing.items():
                if not own and stop():
                    raise Paused(found.name)
                self._upload(found, sha256, stop=stop, urgent=own)
                counted.remove(found)
        finally:
            for found in counted:
                self.allowance.give_back(found.size, self.store.requests_for(found.size))
        return {found.name: self._entry(found, sha256) for found, sha256 in hashed}

    def at_rest(self, found: Found, unit: Unit, now: float, quiet_s: float) -> Found:
        """As it may be taken now. Raises Changed while it's being written."""
        if found.grows or now - found.mtime_ns / 1e9 >= quiet_s:
            return found
        if unit.checkpoint or found.size > APPENDED_BYTES or not self._only_grew(found):
            raise Changed(found.name)
        return replace(found, grows=True)

    def fit_to_leave(self, found: Found, *, ends: bool) -> Found:
        """As much of a file as may leave the box; of our own texts a copy without secrets.

        Unless it `ends`, the beginning of a secret may be at its end. Raises Withheld, OSError.
        """
        if not self.redact.active:
            return found
        if variable := self.redact.name_in(found.name.encode("utf-8")):
            raise Withheld(f"{self.redact.text(found.name)} (is named by {variable})")
        if found.name in OWN_NAMES:
            copy = found.path.with_name(f"public-{found.path.name}")
            path, size = self.redact.publish(found.path, found.size, copy, ends=ends)
            return replace(found, path=path, size=size)
        if found.grows and not ends:
            return replace(found, size=self.redact.clear_size(found.path, found.size))
        return found

    def sweep(self, names: Iterable[str]) -> None:
        """Throw away the parts of files that are other ones by now. Raises StoreDown."""
        hashes = [self._hashes[name][1] for name in names if name in self._hashes]
        self.store.forget(self.under, {self.under + sha256 for sha256 in hashes})

    def _count(self, unit: Unit, files: list[Found], upto: int, ticket: int) -> list[Found]:
        size = sum(found.size for found in files)
        requests = sum(self.store.requests_for(found.size) for found in files)
        if not self.allowance.take(size, requests, upto, ticket):
            raise Refused(named(unit))
        return files

    def _upload(self, found: Found, sha256: str, *, stop: Stop, urgent: bool) -> None:
        with self._turns.setdefault(sha256, threading.Lock()):
            if self._has(sha256, found.size):
                return  # another file with the same bytes
            if not self._swept and self.store.requests_for(found.size) > 1:
                self._swept = True
                self.store.abort_cut(self.under)
            key = self.under + sha256
            self.store.upload(key, found.path, sha256, found.size, stop=stop, urgent=urgent)
            if self._there is not None:
                self._there[sha256] = found.size
        self._turns.pop(sha256, None)

    def _has(self, sha256: str, size: int) -> bool:
        return self._there is not None and self._there.get(sha256) == size

    def _entry(self, found: Found, sha256: str) -> Entry:
        if not found.grows and stamp(found.path) != found.stamp:
            raise Changed(found.name)
        return {"sha256": sha256, "size": found.size, "mode": found.mode}

    def _hash(self, found: Found) -> str:
        seen, sha256 = self._hashes.get(found.name, (None, ""))
        if seen != found.stamp:
            sha256, read, self._held[found.name] = self.redact.sha256(found.path, found.size)
            if read < found.size or (not found.grows and stamp(found.path) != found.stamp):
                raise Changed(found.name)
            self._hashes[found.name] = (found.stamp, sha256)
        if variable := self._held.get(found.name):
            raise Withheld(f"{found.name} (holds {variable})")
        return sha256

    def _only_grew(self, found: Found) -> bool:
        """What it held a round ago is how it begins now: it's appended to, as a log is."""
        size, sha256 = self._begins.get(found.name, (0, ""))
        self._begins[found.name] = found.size, hash_file(found.path, found.size)
        return 0 < size <= found.size and hash_file(found.path, size) == sha256


def named(unit: Unit) -> str:
    """A unit's name for people."""
    return unit.checkpoint or unit.files[0].name


def stamp(path: Path) -> tuple[int, int, int, int]:
    """As Found has it."""
    seen = path.lstat()
    return seen.st_size, seen.st_mtime_ns, seen.st_ino, seen.st_ctime_ns


def hash_file(path: Path, size: int) -> str:
    """Hash of the first `size` bytes. Raises Changed when there are fewer."""
    digest, left = hashlib.sha256(), size
    with open_regular(path) as file:
        while left and (block := file.read(min(left, 1 << 20))):
            digest.update(block)
            left -= len(block)
    if left:
        raise Changed(str(path))
    return digest.hexdigest()
