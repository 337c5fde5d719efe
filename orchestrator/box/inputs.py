"""What a box reads from the bucket: other jobs' results, and what a job committed before."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from orchestrator.box.connection import Absent
from orchestrator.box.durable import sync_file
from orchestrator.box.pieces import Piece, pieces_of
from orchestrator.box.scan import OWN, checkpoint_of
from orchestrator.box.spec import inside
from orchestrator.box.state import CUT, SPOT_NOTICE, WAITING
from orchestrator.box.store import Store

if TYPE_CHECKING:
    from hashlib import _Hash

log = logging.getLogger("gpurun")
DOWNLOADS = 3


class InputMissing(Exception):
    """The other job committed nothing under that path."""


class InputDamaged(InputMissing):
    """The bucket's bytes aren't those that the job committed, or are gone."""


@dataclass(frozen=True)
class Committed:
    """The newest manifest of a job."""

    job: str
    attempt: int
    files: dict[str, dict[str, Any]]


def complete(store: Store, job: str) -> dict[str, Any]:
    """What a job's COMPLETE says; empty while there is none. Raises StoreDown."""
    return _json(store.get(f"jobs/{job}/COMPLETE"))


def told(store: Store, job: str) -> dict[str, Any]:
    """What was last said of a job; empty while nothing was. Raises StoreDown."""
    return _json(store.get(f"jobs/{job}/status.json"))


def outcome(store: Store, job: str) -> str:
    """State word of a job anywhere in the run; done only once its COMPLETE is there.

    One that was cut by a spot notice goes on elsewhere: it's waited for until somebody says no.
    """
    said = complete(store, job)
    if said and not _was_taken_away(said.get("status")):
        return str(said.get("state", "done"))
    status = told(store, job)
    word = str(status.get("state", "waiting"))
    if word == CUT and _was_taken_away(status):
        return WAITING
    return "syncing" if word == "done" else word


def committed(store: Store, job: str) -> Committed | None:
    """Raises StoreDown."""
    for key, _ in reversed(store.keys(f"jobs/{job}/manifests/")):
        said = _json(store.get(key))
        if said.get("format") == 1 and said.get("job") == job:
            files = {str(inside(name)): entry for name, entry in said["files"].items()}
            return Committed(job, int(said["attempt"]), files)
    return None


def fetch_input(store: Store, job: str, path: str, to: Path) -> None:
    """Bring a file or folder of a job's results to `to`, verified; `to` appears whole.

    Raises InputMissing, InputDamaged, StoreDown.
    """
    if to.exists():
        return
    found = committed(store, job)
    wanted = _under(found.files, path) if found else {}
    if not wanted:
        raise InputMissing(f"{job} has no {path} among its results")
    part = to.with_name(to.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    for name, entry in wanted.items():
        _download(store, job, entry, part / name if name else part)
    part.replace(to)


def restore(store: Store, job: str, job_dir: Path) -> int:
    """Put a job's last committed files back into its folder; returns the attempt that made them.

    What the bucket doesn't hold as it was is left out, a checkpoint as a whole: the job goes on
    from an earlier one. Raises StoreDown.
    """
    found = committed(store, job)
    if found is None:
        return 0
    lost: set[str] = set()
    for name, entry in found.files.items():
        try:
            _download(store, job, entry, (job_dir if name in OWN else job_dir / "work") / name)
        except InputDamaged as error:
            log.warning("%s: %s: left out", job, error)
            lost.add(checkpoint_of(name) or name)
    for folder in lost:
        shutil.rmtree(job_dir / "work" / folder, ignore_errors=True)
    _order_checkpoints(job_dir / "work", found.files)
    return found.attempt


def _order_checkpoints(work: Path, names: dict[str, Any]) -> None:
    """Trainers throw the oldest away by mtime: give each folder a time in order of its step."""
    named = {folder for name in names if (folder := checkpoint_of(name))}
    folders = [folder for folder in named if (work / folder).is_dir()]
    in_order = sorted(folders, key=lambda folder: int(folder.rpartition("-")[2]))
    for second, folder in enumerate(in_order):  # a step may be more than any time can be
        os.utime(work / folder, (second, second))


def _under(files: dict[str, dict[str, Any]], path: str) -> dict[str, dict[str, Any]]:
    if path in files:
        return {"": files[path]}
    return {
        name[len(path) + 1 :]: entry
        for name, entry in files.items()
        if name.startswith(path + "/")
    }


def _download(store: Store, job: str, entry: dict[str, Any], to: Path) -> None:
    """Raises InputDamaged, StoreDown."""
    to.parent.mkdir(parents=True, exist_ok=True)
    part = to.with_name(to.name + ".part")
    try:
        arrived = _arrives(store, job, entry, part)
    except Absent:
        arrived = False
    if not arrived:
        part.unlink(missing_ok=True)
        raise InputDamaged(f"{to.name} of {job} isn't in the bucket as it was committed")
    part.chmod(entry["mode"] & 0o777)
    part.replace(to)


def _arrives(store: Store, job: str, entry: dict[str, Any], part: Path) -> bool:
    """Each piece by its hash, then the whole by its own."""
    whole = hashlib.sha256()
    with part.open("wb") as file:
        for piece in pieces_of(entry):
            for _ in range(DOWNLOADS):
                blocks = store.chunks(f"jobs/{job}/blobs/{piece.sha256}")
                if so_far := _append(blocks, piece, file, whole):
                    break
            else:
                return False
            whole = so_far
        sync_file(file)
    return whole.hexdigest() == str(entry["sha256"])


def _append(blocks: Iterator[bytes], piece: Piece, file: IO[bytes], whole: _Hash) -> _Hash | None:
    """The hash of all that is in the file then; None when those aren't the piece's bytes."""
    digest, whole, start = hashlib.sha256(), whole.copy(), file.tell()
    for block in blocks:
        digest.update(block)
        whole.update(block)
        file.write(block)
    if digest.hexdigest() == piece.sha256:
        return whole
    file.seek(start)
    file.truncate()
    return None


def _was_taken_away(status: Any) -> bool:
    reason = status.get("reason") if isinstance(status, dict) else None
    return isinstance(reason, str) and reason.startswith(SPOT_NOTICE)


def _json(data: bytes | None) -> dict[str, Any]:
    try:
        said = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
