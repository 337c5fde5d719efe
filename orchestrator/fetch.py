"""Fetches one committed file: every byte is hashed before it gets its final name.

What a cut download left is gone on with.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from orchestrator.errors import GpurunError, ResultsCorrupt
from orchestrator.manifests import Blob, Bucket, File, blob_key
from orchestrator.pulled import Pulled, hash_of

PARTS = ".parts"


class Home(NamedTuple):
    """Where a run's results come from and go to."""

    bucket: Bucket
    run_id: str
    folder: Path
    pulled: Pulled


class Brought(NamedTuple):
    """One file: what is wrong with it, bytes fetched, what was set aside for it."""

    problem: str = ""
    fetched: int = 0
    kept: tuple[str, ...] = ()


def bring(home: Home, job: str, file: File, names: list[str]) -> Brought:
    """Put one file's bytes under all its names."""
    targets = {name: _target(home.folder, f"{job}/{name}") for name in names}
    missing = {name: target for name, target in targets.items() if not _is_file(target, file)}
    for name in names:
        home.pulled.add(f"{job}/{name}", file.sha256)
    if not missing:
        return Brought()
    part = home.folder / PARTS / job / f"{file.sha256}-{file.mode:o}"
    part.parent.mkdir(parents=True, exist_ok=True)
    said, fetched = _fetch_pieces(home, job, part, file)
    if said:
        return Brought(f"{', '.join(names)}: {said}", fetched)
    part.chmod((file.mode & 0o777) | 0o600)
    kept = []
    for name, target in missing.items():
        ready = part
        if target != [*missing.values()][-1]:
            ready = part.with_name(part.name + ".copy")
            shutil.copy2(part, ready)
        if aside := home.pulled.make_room(f"{job}/{name}"):
            kept.append(f"{name} as {aside}")
        ready.replace(target)
    return Brought("", fetched, tuple(kept))


def _fetch_pieces(home: Home, job: str, part: Path, file: File) -> tuple[str, int]:
    """Fill `part` with the whole file, from one blob or from several; as `_fetch`."""
    if not file.pieces:
        return _fetch(home.bucket, blob_key(home.run_id, job, file.sha256), part, file)
    folder, total = part.with_name(part.name + "-pieces"), 0
    folder.mkdir(exist_ok=True)
    for piece in file.pieces:
        key = blob_key(home.run_id, job, piece.sha256)
        said, fetched = _fetch(home.bucket, key, folder / piece.sha256, piece)
        total += fetched
        if said:
            return said, total
    _join([folder / piece.sha256 for piece in file.pieces], part)
    shutil.rmtree(folder)
    return "" if _is_file(part, file) else "its pieces in the bucket make another file", total


def _join(pieces: list[Path], whole: Path) -> None:
    with whole.open("wb") as out:
        for piece in pieces:
            with piece.open("rb") as opened:
                shutil.copyfileobj(opened, out)
        out.flush()
        os.fsync(out.fileno())


def _fetch(bucket: Bucket, key: str, part: Path, file: Blob) -> tuple[str, int]:
    """Fill `part` until it is the blob; (what is wrong with the blob, bytes fetched).

    Raises what the bucket raises, once no try brings anything new.
    """
    fetched, damaged = 0, False
    while not _is_file(part, file):
        start = part.stat().st_size if part.exists() else 0
        if start >= file.size > 0 or (start and not file.size):
            part.unlink()
            if damaged:
                return "the bytes in the bucket have another hash", fetched
            damaged, start = True, 0
        try:
            _append(part, bucket.read_range(key, start) if file.size else iter(()))
        except GpurunError:
            if bucket.head(key) is None:
                return "isn't in the bucket", fetched
            if part.stat().st_size <= start:
                raise
        got = part.stat().st_size - start
        fetched += got
        if not got and file.size:
            return "is shorter in the bucket than the manifest says", fetched
        if not got and not _is_file(part, file):
            return "an empty file can't have this hash", fetched
    return "", fetched


def _append(part: Path, blocks: Iterator[bytes]) -> None:
    with part.open("ab") as out:
        for block in blocks:
            out.write(block)
        out.flush()
        os.fsync(out.fileno())


def _target(folder: Path, name: str) -> Path:
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.parent.resolve() != folder.resolve() / target.parent.relative_to(folder):
        raise ResultsCorrupt(f"{target} leads out of {folder}", hint="Pull into a fresh folder.")
    return target


def _is_file(path: Path, file: Blob) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != file.size:
        return False
    return hash_of(path) == file.sha256
