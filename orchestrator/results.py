"""Brings a run's results home.

Every byte is hashed before it gets its final name; what a cut download left is gone on with.
What somebody changed here since the last pull is never overwritten: it's kept beside.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from orchestrator.box.state import CUT, SPOT_NOTICE
from orchestrator.errors import (
    FolderError,
    GpurunError,
    ResultsCorrupt,
    ResultsMissing,
    ResultsPartial,
)
from orchestrator.manifests import (
    OVER,
    Blob,
    Bucket,
    File,
    Manifest,
    blob_key,
    end_of,
    newest,
    newest_manifest,
    read_file,
    read_heartbeats,
    read_metrics,
    read_statuses,
)
from orchestrator.pulled import Pulled, hash_of

__all__ = [
    "OVER",
    "Bucket",
    "Manifest",
    "newest_manifest",
    "pull",
    "read_file",
    "read_heartbeats",
    "read_metrics",
    "read_statuses",
]

THREADS = 4
PARTS = ".parts"
SHOWN = 5


class State(StrEnum):
    """How much of a job, or of a run, is here."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    """What was committed is here and verified; the job hasn't ended well, or not yet."""
    NOTHING = "nothing"
    CORRUPT = "corrupt"
    """The bucket's bytes aren't those that the manifest names."""


class JobPull(BaseModel):
    """One job's results on this machine. `ended`: the word of its COMPLETE, if it has one."""

    model_config = ConfigDict(frozen=True)

    state: State
    ended: str | None = None
    seq: int | None = None
    step: int | None = None
    files: int = 0
    bytes: int = 0
    fetched_bytes: int = 0
    problems: tuple[str, ...] = ()
    """Files whose bytes aren't what the manifest says; they aren't here under their names."""
    notes: tuple[str, ...] = ()
    """Manifests passed over as invalid."""
    kept: tuple[str, ...] = ()
    """What somebody changed here and is still here, in words."""
    left_out: tuple[str, ...] = ()
    """What of its results is no plain file and was never uploaded, in words."""
    withheld: tuple[str, ...] = ()
    """What of its results holds a secret and was never uploaded, in words."""


class PullReport(BaseModel):
    """A run's results on this machine."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    folder: Path
    jobs: dict[str, JobPull]
    over: bool = False
    """Nothing more will come."""

    @property
    def state(self) -> State:
        states = {job.state for job in self.jobs.values()}
        if State.CORRUPT in states:
            return State.CORRUPT
        if states <= {State.NOTHING}:
            return State.NOTHING
        return State.COMPLETE if states == {State.COMPLETE} else State.PARTIAL

    @property
    def files(self) -> int:
        return sum(job.files for job in self.jobs.values())

    @property
    def bytes(self) -> int:
        return sum(job.bytes for job in self.jobs.values())

    def words(self) -> str:
        """One line for people."""
        short = self._short()
        said = f"{self.state}: {self.files} files, {self.bytes / 1e6:.1f} MB in {self.folder}"
        kept = [f"{name}/{words}" for name, job in self.jobs.items() for words in job.kept]
        said = f"{said} ({short})" if short else said
        left_out = self.withheld + self._each(lambda job: job.left_out)
        said = f"{said}, but left out: {_some(left_out)}" if left_out else said
        return f"{said}; changed here and kept: {', '.join(kept)}" if kept else said

    def _short(self) -> str:
        return ", ".join(
            f"{name} {job.state}" for name, job in self.jobs.items() if job.state != "complete"
        )

    def raise_unless_complete(self) -> None:
        """Raises ResultsCorrupt, ResultsMissing or ResultsPartial.

        Partial is also what lacks a result because a secret is in it.
        """
        again = f"Pull again: gpurun pull {self.run_id}"
        if self.state is State.CORRUPT:
            problems = [
                f"{name}: {said}" for name, job in self.jobs.items() for said in job.problems
            ]
            raise ResultsCorrupt("; ".join(problems), hint=f"The rest is verified. {again}")
        if self.state is State.NOTHING:
            raise ResultsMissing(
                f"No job of {self.run_id} has committed anything.", hint=self._why() or again
            )
        if self.state is State.PARTIAL:
            raise ResultsPartial(
                f"Verified, but not complete: {self._short()}.", hint=self._why() or again
            )
        self.raise_if_withheld()

    def _why(self) -> str:
        """Where to read why there is no more; empty while more may come."""
        if not self.over:
            return ""
        logs = f"gpurun logs {self.run_id}"
        # Of a job that committed nothing there is no log, but its box's console.
        told = next((name for name, job in self.jobs.items() if job.state is State.PARTIAL), "")
        return f"The run is over; this is all there is. Why: {logs} {told}".rstrip()

    def raise_if_withheld(self) -> None:
        """Raises ResultsPartial where a result stayed on its box because a secret is in it."""
        if self.withheld:
            raise ResultsPartial(
                f"Never uploaded, as a secret is in it: {_some(self.withheld)}.",
                hint="The rest is verified. Let the job leave the secret out of its results, "
                "and run it again: docs/troubleshooting.md.",
            )

    @property
    def withheld(self) -> tuple[str, ...]:
        """What holds a secret and was never uploaded, with its job, in words."""
        return self._each(lambda job: job.withheld)

    def _each(self, of: Callable[[JobPull], tuple[str, ...]]) -> tuple[str, ...]:
        return tuple(f"{name}/{words}" for name, job in self.jobs.items() for words in of(job))


def _some(words: Sequence[str]) -> str:
    more = [f"{len(words) - SHOWN} more"] if words[SHOWN:] else []
    return ", ".join([*words[:SHOWN], *more])


class Home(NamedTuple):
    """Where a run's results come from and go to."""

    bucket: Bucket
    run_id: str
    folder: Path
    pulled: Pulled


def pull(bucket: Bucket, run_id: str, to: Path, jobs: Iterable[str]) -> PullReport:
    """Bring the newest committed results of each job to `<to>/<run_id>/<job>/`, verified.

    Files that are here already, with the right hash, aren't fetched again. What a newer manifest
    no longer names is removed; a file that was changed here is neither removed nor overwritten.
    May be cut at any moment and called again. Raises FolderError when `to` can't take them; the
    bucket's own errors pass through.
    """
    folder = to / run_id
    with writing_into(folder):
        folder.mkdir(parents=True, exist_ok=True)
        home = Home(bucket, run_id, folder, Pulled(folder))
        found = {job: _pull_job(home, job) for job in jobs}
    shutil.rmtree(folder / PARTS, ignore_errors=True)
    return PullReport(run_id=run_id, folder=folder, jobs=found, over=_is_over(home, found))


def _is_over(home: Home, found: dict[str, JobPull]) -> bool:
    """By what the jobs themselves say; one that lost its spot box may go on in another."""
    open_ones = [name for name, job in found.items() if job.state is not State.COMPLETE]
    told = read_statuses(home.bucket, home.run_id, open_ones)
    return all(
        (state := told.get(name, {}).get("state")) in OVER
        and not (state == CUT and str(told[name].get("reason")).startswith(SPOT_NOTICE))
        for name in open_ones
    )


@contextmanager
def writing_into(folder: Path) -> Iterator[None]:
    """Raises FolderError for what this machine's file system refuses."""
    try:
        yield
    except OSError as error:
        where = error.filename2 or error.filename or folder
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        room = "Make room and pull again, it goes on from here; or pull" if full else "Pull"
        raise FolderError(
            f"{where} can't be written: {error.strerror or error}.",
            hint=f"{room} into another folder: gpurun pull {folder.name} --to DIR",
        ) from error


def _pull_job(home: Home, job: str) -> JobPull:
    found, notes = newest(home.bucket, home.run_id, job)
    if found is None:
        return JobPull(state=State.CORRUPT if notes else State.NOTHING, problems=notes)
    manifest, end = found.manifest, end_of(home.bucket, home.run_id, job, found)
    names: dict[File, list[str]] = {}
    for name, file in manifest.files.items():
        names.setdefault(file, []).append(name)
    with ThreadPoolExecutor(THREADS) as pool:
        work = [pool.submit(_bring, home, job, file, into) for file, into in names.items()]
        outcomes = [future.result() for future in work]
    problems = tuple(it.problem for it in outcomes if it.problem)
    kept = [words for it in outcomes for words in it.kept]
    if not problems:
        wanted = {f"{job}/{name}" for name in manifest.files}
        kept += [f"{name} (no longer a result)" for name in home.pulled.drop(f"{job}/", wanted)]
    complete = end.word == "done" and manifest.final
    return JobPull(
        state=State.CORRUPT if problems else State.COMPLETE if complete else State.PARTIAL,
        ended=end.word,
        seq=manifest.seq,
        step=manifest.step,
        files=len(manifest.files) - len(problems),
        bytes=sum(file.size for file in manifest.files.values()),
        fetched_bytes=sum(it.fetched for it in outcomes),
        problems=problems,
        notes=notes,
        kept=tuple(kept),
        left_out=end.left_out,
        withheld=end.withheld,
    )


class Brought(NamedTuple):
    """One file: what is wrong with it, bytes fetched, what was set aside for it."""

    problem: str = ""
    fetched: int = 0
    kept: tuple[str, ...] = ()


def _bring(home: Home, job: str, file: File, names: list[str]) -> Brought:
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
