"""A job's files as blobs in the bucket, each under its hash; any number of threads may ask.

A hash is kept with the file's size, mtime and inode, so a file of the same length with an older
mtime is read anew. What is uploaded is counted against the box's allowance before it goes. Of a
file that has grown only what is new goes up.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from orchestrator.box.allowance import OWN, REST, Allowance, Refused
from orchestrator.box.parts import Changed, Paused, Span, Stop
from orchestrator.box.pieces import Entry, Piece, Reading, entry_of, pieces_of
from orchestrator.box.redact import Redactor, Withheld
from orchestrator.box.regular import open_regular
from orchestrator.box.scan import OWN as OWN_NAMES
from orchestrator.box.scan import Found, Unit
from orchestrator.box.store import Store

# A larger file that is being written is rather weights than a table of numbers.
APPENDED_BYTES = 64 << 20


class Hashed(NamedTuple):
    """What a file held when it was read: its hash, and the blobs that make it up."""

    sha256: str = ""
    pieces: tuple[Piece, ...] = ()
    secret: str | None = None
    """The name of one that was in it."""


@dataclass
class Blobs:
    """Knows what of a job is in the bucket by listing it once."""

    store: Store
    under: str
    """`jobs/<job>/blobs/`."""
    allowance: Allowance
    redact: Redactor = field(default_factory=Redactor)
    _there: dict[str, int] | None = None
    _hashes: dict[str, tuple[tuple[int, int, int, int], Hashed]] = field(default_factory=dict)
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

    def bring(
        self,
        unit: Unit,
        before: Mapping[str, Entry],
        *,
        own: bool,
        stop: Stop,
        ticket: int = 0,
    ) -> dict[str, Entry]:
        """The unit's entries, once all of its bytes are in the bucket. `before`: the last ones.

        Raises Changed, Paused, Refused, Withheld, StoreDown, OSError.
        """
        total = sum(found.size for found in unit.files)
        if self.allowance.is_beyond(total):
            raise Refused(named(unit))
        hashed = [(found, self._hash(found, before.get(found.name))) for found in unit.files]
        blobs = {sha256: span for found, it in hashed for sha256, span in _spans(found.path, it)}
        missing = {sha: span for sha, span in blobs.items() if not self._has(sha, span.size)}
        counted = self._count(unit, list(missing.values()), OWN if own else REST, ticket)
        try:
            for sha256, span in missing.items():
                if not own and stop():
                    raise Paused(str(span.path))
                self._upload(span, sha256, stop=stop, urgent=own)
                counted.remove(span)
        finally:
            for span in counted:
                self.allowance.give_back(span.size, self.store.requests_for(span.size))
        return {found.name: self._entry(found, it) for found, it in hashed}

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
        known = [self._hashes[name][1] for name in names if name in self._hashes]
        wanted = {self.under + piece.sha256 for hashed in known for piece in hashed.pieces}
        self.store.forget(self.under, wanted)

    def _count(self, unit: Unit, spans: list[Span], upto: int, ticket: int) -> list[Span]:
        size = sum(span.size for span in spans)
        requests = sum(self.store.requests_for(span.size) for span in spans)
        if not self.allowance.take(size, requests, upto, ticket):
            raise Refused(named(unit))
        return spans

    def _upload(self, span: Span, sha256: str, *, stop: Stop, urgent: bool) -> None:
        with self._turns.setdefault(sha256, threading.Lock()):
            if self._has(sha256, span.size):
                return  # another file with the same bytes
            if not self._swept and self.store.requests_for(span.size) > 1:
                self._swept = True
                self.store.abort_cut(self.under)
            key = self.under + sha256
            self.store.upload(
                key, span.path, sha256, span.size, start=span.start, stop=stop, urgent=urgent
            )
            if self._there is not None:
                self._there[sha256] = span.size
        self._turns.pop(sha256, None)

    def _has(self, sha256: str, size: int) -> bool:
        return self._there is not None and self._there.get(sha256) == size

    def _entry(self, found: Found, hashed: Hashed) -> Entry:
        if not found.grows and stamp(found.path) != found.stamp:
            raise Changed(found.name)
        return entry_of(hashed.sha256, hashed.pieces, found.mode)

    def _hash(self, found: Found, before: Entry | None) -> Hashed:
        seen, hashed = self._hashes.get(found.name, (None, Hashed()))
        if seen != found.stamp:
            hashed = self._read(found, before)
            self._hashes[found.name] = (found.stamp, hashed)
        if hashed.secret:
            raise Withheld(f"{found.name} (holds {hashed.secret})")
        return hashed

    def _read(self, found: Found, before: Entry | None) -> Hashed:
        may_have_grown = found.grows or found.size <= APPENDED_BYTES
        reading = Reading(pieces_of(before) if before and may_have_grown else ())
        read, secret = self.redact.read(found.path, found.size, reading.see)
        if read < found.size or (not found.grows and stamp(found.path) != found.stamp):
            raise Changed(found.name)
        return Hashed(reading.sha256, reading.pieces(found.path, found.size), secret)

    def _only_grew(self, found: Found) -> bool:
        """What it held a round ago is how it begins now: it's appended to, as a log is."""
        size, sha256 = self._begins.get(found.name, (0, ""))
        self._begins[found.name] = found.size, hash_file(found.path, found.size)
        return 0 < size <= found.size and hash_file(found.path, size) == sha256


def _spans(path: Path, hashed: Hashed) -> Iterator[tuple[str, Span]]:
    """Where in the file each of its blobs is."""
    start = 0
    for piece in hashed.pieces:
        yield piece.sha256, Span(path, start, piece.size)
        start += piece.size


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
