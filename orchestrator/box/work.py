"""The agent's slow work, each piece for a background lane; nothing here decides anything."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.box import inputs
from orchestrator.box.connection import StoreDown
from orchestrator.box.durable import sync_folder, write_whole
from orchestrator.box.process import Place, job_json, unpack_workdir
from orchestrator.box.redact import Redactor
from orchestrator.box.regular import open_regular
from orchestrator.box.spec import Input, JobSpec
from orchestrator.box.store import Store

LAST_WORDS_BYTES = 4096


@dataclass(frozen=True)
class Prepared:
    """`attempt`: how many there were before. `done`: the status of a life that ended well."""

    attempt: int
    done: dict[str, Any] | None


def prepare(store: Store, root: Path, spec: JobSpec, here: frozenset[str]) -> Prepared:
    """Make a job's folder ready: its workdir, what it committed before, its inputs, its job.json.

    `here`: jobs of this box, whose results are linked and not copied. Raises InputMissing,
    StoreDown, OSError.
    """
    place = Place(root, spec.name)
    said = inputs.complete(store, spec.name)
    if said.get("state") == "done":
        return Prepared(0, done=said.get("status", {}))
    marker = place.folder / "prepared"
    if (attempt := _attempt_in(marker)) is None:
        shutil.rmtree(place.work, ignore_errors=True)
        unpack_workdir(root, place, spec.workdir)
        sync_folder(place.work)
        attempt = inputs.restore(store, spec.name, place.folder)
        write_whole(marker, str(attempt))
    place.inputs.mkdir(exist_ok=True)
    for name, item in spec.inputs.items():
        _bring(store, root, item, place.inputs / name, here)
    (place.folder / "job.json").write_text(json.dumps(job_json(spec, place), indent=1))
    return Prepared(attempt, done=None)


def look_back(store: Store, jobs: list[str]) -> dict[str, dict[str, Any]]:
    """What earlier boxes said last of these jobs. Raises StoreDown."""
    return {job: said for job in jobs if (said := inputs.told(store, job))}


def poll(store: Store, jobs: list[str]) -> dict[str, str]:
    """State words of other boxes' jobs. Raises StoreDown."""
    return {job: inputs.outcome(store, job) for job in jobs}


def told_to_stop(store: Store, box: str) -> bool:
    """Whether the controller asks for a planned stop; an S3 that can't be asked says nothing."""
    try:
        return store.holds(f"boxes/{box}/stop")
    except StoreDown:
        return False


def report(
    store: Store,
    box: str,
    heartbeat: dict[str, Any],
    statuses: dict[str, dict[str, Any]],
    console: bytes | None,
) -> None:
    """Raises StoreDown."""
    for job, status in statuses.items():
        store.put(f"jobs/{job}/status.json", json.dumps(status).encode())
    store.put(f"boxes/{box}/heartbeat.json", json.dumps(heartbeat).encode())
    if console is not None:
        store.put(f"boxes/{box}/console.log", console)


def tail(path: Path, size: int, redact: Redactor) -> bytes:
    """The last `size` bytes without secrets; empty when there's no such file."""
    try:
        with open_regular(path) as file:
            start = max(0, path.stat().st_size - size)
            file.seek(start)
            return redact.clean(file.read(size), begins=start == 0)
    except OSError:
        return b""


def last_words(log: Path, redact: Redactor) -> str:
    """The last line that says something, shortened."""
    lines = tail(log, LAST_WORDS_BYTES, redact).decode("utf-8", "replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    shown = said[-1][:160] if said else ""
    return "".join(each if each.isprintable() else " " for each in shown)


def _attempt_in(marker: Path) -> int | None:
    """What a preparation that was gone through with noted, if there was one."""
    try:
        return int(marker.read_text())
    except (FileNotFoundError, ValueError):
        return None


def _bring(store: Store, root: Path, item: Input, to: Path, here: frozenset[str]) -> None:
    if item.job not in here:
        inputs.fetch_input(store, item.job, item.path, to)
        return
    source = Place(root, item.job).work / item.path
    if not source.exists():
        # It ended in an earlier life of this box; only the bucket has it.
        inputs.fetch_input(store, item.job, item.path, to)
    elif not to.exists():
        to.unlink(missing_ok=True)
        to.symlink_to(source)
