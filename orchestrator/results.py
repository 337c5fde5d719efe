"""Brings a run's results home and reads what its boxes say.

Only the newest valid manifest of a job counts. Every byte is hashed before it gets its final
name; what a cut download left is gone on with. A path that leaves the folder is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from orchestrator.errors import (
    FolderError,
    GpurunError,
    ResultsCorrupt,
    ResultsMissing,
    ResultsPartial,
)

THREADS = 4
CHUNK = 1 << 20
PARTS = ".parts"
OVER = frozenset({"done", "failed", "cut", "blocked"})
"""Job states after which nothing more comes."""


class Bucket(Protocol):
    """What of the results bucket is needed here."""

    def get(self, key: str) -> bytes | None: ...

    def head(self, key: str) -> int | None: ...

    def keys(self, prefix: str) -> Iterator[tuple[str, int]]: ...

    def read_range(self, key: str, start: int) -> Iterator[bytes]: ...


class State(StrEnum):
    """How much of a job, or of a run, is here."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    """What was committed is here and verified; the job hasn't ended well, or not yet."""
    NOTHING = "nothing"
    CORRUPT = "corrupt"
    """The bucket's bytes aren't those that the manifest names."""


def _inside(path: str) -> str:
    pure = PurePosixPath(path)
    unsafe = pure.is_absolute() or not pure.parts or ".." in pure.parts
    if unsafe or "\0" in path or pure.as_posix() != path:
        raise ValueError("leaves its folder")
    return path


class File(BaseModel):
    """One file of a manifest."""

    model_config = ConfigDict(frozen=True)

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int = Field(ge=0)
    mode: int = Field(ge=0)


class Manifest(BaseModel):
    """What a job had committed at one moment; `at` in epoch seconds."""

    model_config = ConfigDict(frozen=True)

    format: Literal[1]
    run: str
    job: str
    seq: int
    attempt: int
    at: float
    step: int | None
    final: bool
    files: dict[Annotated[str, AfterValidator(_inside)], File]


class Committed(NamedTuple):
    """A manifest, its key, and the hash of its bytes."""

    key: str
    manifest: Manifest
    sha256: str


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


class PullReport(BaseModel):
    """A run's results on this machine."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    folder: Path
    jobs: dict[str, JobPull]

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
        short = [
            f"{name} {job.state}" for name, job in self.jobs.items() if job.state != "complete"
        ]
        said = f"{self.state}: {self.files} files, {self.bytes / 1e6:.1f} MB in {self.folder}"
        return f"{said} ({', '.join(short)})" if short else said

    def raise_unless_complete(self) -> None:
        """Raises ResultsCorrupt, ResultsMissing or ResultsPartial."""
        again = f"Pull again: gpurun pull {self.run_id}"
        if self.state is State.CORRUPT:
            problems = [
                f"{name}: {said}" for name, job in self.jobs.items() for said in job.problems
            ]
            raise ResultsCorrupt("; ".join(problems), hint=f"The rest is verified. {again}")
        if self.state is State.NOTHING:
            raise ResultsMissing(f"No job of {self.run_id} has committed anything.", hint=again)
        if self.state is State.PARTIAL:
            raise ResultsPartial(f"Verified, but not complete: {self.words()}.", hint=again)


def pull(bucket: Bucket, run_id: str, to: Path, jobs: Iterable[str]) -> PullReport:
    """Bring the newest committed results of each job to `<to>/<run_id>/<job>/`, verified.

    Files that are here already, with the right hash, aren't fetched again. May be cut at any
    moment and called again. Raises FolderError when `to` can't take them; the bucket's own
    errors pass through.
    """
    folder = to / run_id
    with writing_into(folder):
        folder.mkdir(parents=True, exist_ok=True)
        found = {job: _pull_job(bucket, run_id, job, folder) for job in jobs}
    shutil.rmtree(folder / PARTS, ignore_errors=True)
    return PullReport(run_id=run_id, folder=folder, jobs=found)


@contextmanager
def writing_into(folder: Path) -> Iterator[None]:
    """Raises FolderError for what this machine's file system refuses."""
    try:
        yield
    except OSError as error:
        where = error.filename2 or error.filename or folder
        raise FolderError(
            f"{where} can't be written: {error.strerror or error}.",
            hint=f"Pull into another folder: gpurun pull {folder.name} --to DIR",
        ) from error


def newest_manifest(bucket: Bucket, run_id: str, job: str) -> Committed | None:
    """The newest manifest that is whole, of this job, and names only paths inside its folder."""
    return _newest(bucket, run_id, job)[0]


def read_statuses(bucket: Bucket, run_id: str, jobs: Iterable[str]) -> dict[str, dict[str, Any]]:
    """status.json of each job that has one, with `complete`: it ended well, by its COMPLETE."""
    found = {}
    for job in jobs:
        base = f"runs/{run_id}/jobs/{job}/"
        status = _json(bucket.get(base + "status.json"))
        complete = _json(bucket.get(base + "COMPLETE"))
        if status or complete:
            done = complete.get("state") == "done"
            found[job] = {"job": job, "state": "syncing"} | status | {"complete": done}
    return found


def read_heartbeats(
    bucket: Bucket, run_id: str, boxes: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """heartbeat.json of each box that has one."""
    beats = {box: _json(bucket.get(f"runs/{run_id}/boxes/{box}/heartbeat.json")) for box in boxes}
    return {box: beat for box, beat in beats.items() if _is_beat(beat)}


def read_metrics(bucket: Bucket, run_id: str, job: str) -> list[dict[str, Any]]:
    """The committed metrics of a job, line by line; a line that a killed process cut is out."""
    data = read_file(bucket, run_id, job, "metrics.jsonl") or b""
    lines = (_json(line) for line in data.splitlines())
    return [line for line in lines if line]


def read_file(bucket: Bucket, run_id: str, job: str, name: str) -> bytes | None:
    """One committed file of a job; None when the newest manifest doesn't name it."""
    found = newest_manifest(bucket, run_id, job)
    file = found.manifest.files.get(name) if found else None
    return bucket.get(_blob(run_id, job, file.sha256)) if file else None


def _newest(bucket: Bucket, run_id: str, job: str) -> tuple[Committed | None, tuple[str, ...]]:
    """The newest valid manifest, and what is wrong with each newer one."""
    keys = sorted(key for key, _ in bucket.keys(f"runs/{run_id}/jobs/{_inside(job)}/manifests/"))
    notes = []
    for key in reversed(keys):
        data = bucket.get(key) or b""
        try:
            manifest = Manifest.model_validate_json(data)
        except ValidationError as error:
            notes.append(f"{key}: {error.errors()[0]['msg']}")
            continue
        if (manifest.run, manifest.job) == (run_id, job):
            return Committed(key, manifest, hashlib.sha256(data).hexdigest()), tuple(notes)
        notes.append(f"{key}: is of {manifest.run}/{manifest.job}")
    return None, tuple(notes)


def _pull_job(bucket: Bucket, run_id: str, job: str, folder: Path) -> JobPull:
    found, notes = _newest(bucket, run_id, job)
    if found is None:
        return JobPull(state=State.CORRUPT if notes else State.NOTHING, problems=notes)
    manifest, ended = found.manifest, _ended(bucket, run_id, job, found)
    names: dict[File, list[str]] = {}
    for name, file in manifest.files.items():
        names.setdefault(file, []).append(name)
    with ThreadPoolExecutor(THREADS) as pool:
        work = [pool.submit(_bring, bucket, run_id, job, folder, f, n) for f, n in names.items()]
        outcomes = [future.result() for future in work]
    problems = tuple(said for said, _ in outcomes if said)
    complete = ended == "done" and manifest.final
    return JobPull(
        state=State.CORRUPT if problems else State.COMPLETE if complete else State.PARTIAL,
        ended=ended,
        seq=manifest.seq,
        step=manifest.step,
        files=len(manifest.files) - len(problems),
        bytes=sum(file.size for file in manifest.files.values()),
        fetched_bytes=sum(fetched for _, fetched in outcomes),
        problems=problems,
        notes=notes,
    )


def _ended(bucket: Bucket, run_id: str, job: str, found: Committed) -> str | None:
    """The word of the job's COMPLETE, if it names this very manifest."""
    complete = _json(bucket.get(f"runs/{run_id}/jobs/{job}/COMPLETE"))
    if (complete.get("manifest"), complete.get("sha256")) != (found.key, found.sha256):
        return None
    return str(complete.get("state", "done"))


def _bring(
    bucket: Bucket, run_id: str, job: str, folder: Path, file: File, names: list[str]
) -> tuple[str, int]:
    """Put one blob under all its names; (what is wrong with it, bytes fetched)."""
    targets = [_target(folder, f"{job}/{name}") for name in names]
    missing = [target for target in targets if not _is_file(target, file)]
    if not missing:
        return "", 0
    part = folder / PARTS / job / file.sha256
    part.parent.mkdir(parents=True, exist_ok=True)
    said, fetched = _fetch(bucket, _blob(run_id, job, file.sha256), part, file)
    if said:
        return f"{', '.join(names)}: {said}", fetched
    part.chmod((file.mode & 0o777) | 0o600)
    for target in missing[1:]:
        copy = part.with_name(part.name + ".copy")
        shutil.copy2(part, copy)
        copy.replace(target)
    part.replace(missing[0])
    return "", fetched


def _fetch(bucket: Bucket, key: str, part: Path, file: File) -> tuple[str, int]:
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


def _is_file(path: Path, file: File) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != file.size:
        return False
    digest = hashlib.sha256()
    with path.open("rb") as opened:
        while block := opened.read(CHUNK):
            digest.update(block)
    return digest.hexdigest() == file.sha256


def _blob(run_id: str, job: str, sha256: str) -> str:
    return f"runs/{run_id}/jobs/{job}/blobs/{sha256}"


def _is_beat(beat: dict[str, Any]) -> bool:
    return isinstance(beat.get("phase"), str) and isinstance(beat.get("at"), int | float)


def _json(data: bytes | None) -> dict[str, Any]:
    try:
        said = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
