"""Reads what the boxes of a run have committed and what they say of themselves.

Only the newest valid manifest of a job counts. A path that leaves the folder is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, Protocol, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

OVER = frozenset({"done", "failed", "cut", "blocked"})
"""Job states after which nothing more comes."""


class Bucket(Protocol):
    """What of the results bucket is needed here."""

    def get(self, key: str) -> bytes | None: ...

    def head(self, key: str) -> int | None: ...

    def keys(self, prefix: str) -> Iterator[tuple[str, int]]: ...

    def read_range(self, key: str, start: int) -> Iterator[bytes]: ...


def _inside(path: str) -> str:
    pure = PurePosixPath(path)
    unsafe = pure.is_absolute() or not pure.parts or ".." in pure.parts
    if unsafe or "\0" in path or pure.as_posix() != path:
        raise ValueError("leaves its folder")
    return path


class Blob(BaseModel):
    """Bytes in the bucket, by their hash."""

    model_config = ConfigDict(frozen=True)

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int = Field(ge=0)


class File(Blob):
    """One file of a manifest: a blob, or one that grew, in pieces one after the other."""

    mode: int = Field(ge=0)
    pieces: tuple[Blob, ...] = ()

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if self.pieces and sum(piece.size for piece in self.pieces) != self.size:
            raise ValueError("its pieces don't add up to its size")
        return self

    @property
    def blobs(self) -> tuple[Blob, ...]:
        """What it's made of, in order."""
        return self.pieces or (self,)


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


def newest_manifest(bucket: Bucket, run_id: str, job: str) -> Committed | None:
    """The newest manifest that is whole, of this job, and names only paths inside its folder."""
    return newest(bucket, run_id, job)[0]


def newest(bucket: Bucket, run_id: str, job: str) -> tuple[Committed | None, tuple[str, ...]]:
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


class End(NamedTuple):
    """What a job's COMPLETE says; without one, nothing."""

    word: str | None = None
    left_out: tuple[str, ...] = ()
    """What of its results was never uploaded, in words: links, broken checkpoints and such."""
    withheld: tuple[str, ...] = ()
    """The same of what holds a secret."""


def end_of(bucket: Bucket, run_id: str, job: str, found: Committed) -> End:
    """By the job's COMPLETE, if it names this very manifest."""
    complete = _json(bucket.get(f"runs/{run_id}/jobs/{job}/COMPLETE"))
    if (complete.get("manifest"), complete.get("sha256")) != (found.key, found.sha256):
        return End()
    word = str(complete.get("state", "done"))
    return End(word, _words(complete.get("left_out")), _words(complete.get("withheld")))


def read_metrics(bucket: Bucket, run_id: str, job: str) -> list[dict[str, Any]]:
    """The committed metrics of a job, line by line; a line that a killed process cut is out."""
    data = read_file(bucket, run_id, job, "metrics.jsonl") or b""
    lines = (_json(line) for line in data.splitlines())
    return [line for line in lines if line]


def read_file(
    bucket: Bucket, run_id: str, job: str, name: str, known: dict[str, bytes] | None = None
) -> bytes | None:
    """One committed file of a job; None when the newest manifest doesn't name it.

    `known`: blobs by their hash that were read before, and are then again.
    """
    found = newest_manifest(bucket, run_id, job)
    file = found.manifest.files.get(name) if found else None
    if file is None:
        return None
    known = {} if known is None else known
    for blob in file.blobs:
        if blob.sha256 not in known:
            data = bucket.get(blob_key(run_id, job, blob.sha256))
            if data is None:
                return None
            known[blob.sha256] = data
    return b"".join(known[blob.sha256] for blob in file.blobs)


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


def blob_key(run_id: str, job: str, sha256: str) -> str:
    return f"runs/{run_id}/jobs/{job}/blobs/{sha256}"


def _is_beat(beat: dict[str, Any]) -> bool:
    return isinstance(beat.get("phase"), str) and isinstance(beat.get("at"), int | float)


def _words(said: object) -> tuple[str, ...]:
    return tuple(map(str, said)) if isinstance(said, list) else ()


def _json(data: bytes | None) -> dict[str, Any]:
    try:
        said = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
