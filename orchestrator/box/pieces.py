"""A file that grows goes up in pieces: what was committed of it stays, only the rest goes.

Pieces come in classes, each of sizes 32 times those of the one before: 32 of a class become one of
the next, and none stands before one of a higher class. So no byte goes up more than 3 times in a
file of up to 128 MB (once more for each further factor of 32), on top less than 4 KB a round; and
there are at most 31 pieces of each class.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator.box.parts import Changed
from orchestrator.box.regular import open_regular

if TYPE_CHECKING:
    from hashlib import _Hash

Entry = dict[str, Any]
LEAST = 4096
"""Bytes; a smaller piece at the end goes up again together with what was appended."""
FAN = 32


class Piece(NamedTuple):
    """A blob that is the next `size` bytes of a file."""

    sha256: str
    size: int


def pieces_of(entry: Entry) -> tuple[Piece, ...]:
    """A committed file's blobs in order; a file without pieces is one blob."""
    listed = entry.get("pieces") or (entry,)
    return tuple(Piece(str(it["sha256"]), int(it["size"])) for it in listed)


def blobs_of(entries: Iterable[Entry]) -> dict[str, int]:
    """Hash and size of all blobs that the entries need."""
    return {piece.sha256: piece.size for entry in entries for piece in pieces_of(entry)}


def entry_of(sha256: str, pieces: Sequence[Piece], mode: int) -> Entry:
    """What a manifest says of a file."""
    entry: Entry = {"sha256": sha256, "size": sum(piece.size for piece in pieces), "mode": mode}
    if len(pieces) > 1:
        entry["pieces"] = [piece._asdict() for piece in pieces]
    return entry


def stay(sizes: Sequence[int], added: int) -> int:
    """How many of the pieces stay as they are, when `added` bytes follow; the others go into the
    new piece with those.
    """
    kept = len(sizes)
    while kept:
        class_ = _class(added)
        last = _class(sizes[kept - 1])
        if last > class_:
            break
        # One of less than LEAST goes with whatever follows; of the others it takes FAN.
        several = 1 if last < class_ or last < 0 else FAN - 1
        if several > kept or (several > 1 and _class(sizes[kept - several]) > last):
            break
        added += sum(sizes[kept - several : kept])
        kept -= several
    return kept


class Reading:
    """Follows a file from its beginning: its hash, and which committed pieces it begins with."""

    def __init__(self, before: Sequence[Piece]) -> None:
        self._before = [piece for piece in before if piece.size]
        self._whole, self._piece, self._at = hashlib.sha256(), hashlib.sha256(), 0
        self._ends = [self._whole.copy()]
        """The whole's hash so far, at the end of each piece that is as it was."""
        self._same = 0

    def see(self, block: bytes) -> None:
        while block:
            piece = self._before[self._same] if self._same < len(self._before) else None
            head = block[: piece.size - self._at] if piece else block
            self._whole.update(head)
            if piece:
                self._follow(piece, head)
            block = block[len(head) :]

    def _follow(self, piece: Piece, head: bytes) -> None:
        self._piece.update(head)
        self._at += len(head)
        if self._at < piece.size:
            return
        if self._piece.hexdigest() == piece.sha256:
            self._same += 1
            self._ends.append(self._whole.copy())
        else:
            del self._before[self._same :]
        self._piece, self._at = hashlib.sha256(), 0

    @property
    def sha256(self) -> str:
        return self._whole.hexdigest()

    def pieces(self, path: Path, size: int) -> tuple[Piece, ...]:
        """The file's pieces, once all of its first `size` bytes were seen.

        Raises Changed when they are others by now, OSError.
        """
        same = self._before[: self._same]
        start = sum(piece.size for piece in same)
        if same and start == size:
            return tuple(same)
        kept = stay([piece.size for piece in same], size - start)
        if not kept:
            return (Piece(self.sha256, size),)
        start = sum(piece.size for piece in same[:kept])
        return (*same[:kept], self._rest(path, start, size, self._ends[kept]))

    def _rest(self, path: Path, start: int, size: int, whole: _Hash) -> Piece:
        """The new piece; with those before it it must make the very file that was searched."""
        piece, whole, left = hashlib.sha256(), whole.copy(), size - start
        with open_regular(path) as file:
            file.seek(start)
            while left and (block := file.read(min(left, 1 << 20))):
                piece.update(block)
                whole.update(block)
                left -= len(block)
        if left or whole.hexdigest() != self.sha256:
            raise Changed(str(path))
        return Piece(piece.hexdigest(), size - start)


def _class(size: int) -> int:
    class_ = -1
    while size >= LEAST * FAN ** (class_ + 1):
        class_ += 1
    return class_
