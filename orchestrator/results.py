"""Brings a run's results home.

Every byte is hashed before it gets its final name; what a cut download left is gone on with.
What somebody changed here since the last pull is never overwritten: it's kept beside.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from orchestrator.box.state import CUT, SPOT_NOTICE
from orchestrator.errors import FolderError
from orchestrator.fetch import PARTS, Home, bring
from orchestrator.manifests import (
    OVER,
    Bucket,
    File,
    Manifest,
    end_of,
    newest,
    newest_manifest,
    read_file,
    read_heartbeats,
    read_metrics,
    read_statuses,
)
from orchestrator.pull_report import JobPull, PullReport, State
from orchestrator.pulled import Pulled

__all__ = [
    "OVER",
    "Bucket",
    "JobPull",
    "Manifest",
    "PullReport",
    "State",
    "newest_manifest",
    "pull",
    "read_file",
    "read_heartbeats",
    "read_metrics",
    "read_statuses",
]

THREADS = 4


def pull(bucket: Bucket, run_id: str, to: Path, jobs: Iterable[str]) -> PullReport:
    """Bring the newest committed results of each job to `<to>/<run_id>/<job>/`, verified.

    Files that are here already, with the right hash, aren't fetched again. What a newer manifest
    no longer names is removed; a file that was changed here is neither removed nor overwritten.
    May be cut at any moment and called again. Raises FolderError when `to` can't take them; the
    bucket's own errors pass through.
    """
    folder = to / run_id
    with writing_into(folder, f"gpurun pull {run_id}"):
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
def writing_into(folder: Path, command: str) -> Iterator[None]:
    """Raises FolderError for what this machine's file system refuses.

    `command` is what a person types to have it written again; it takes `--to DIR`.
    """
    try:
        yield
    except OSError as error:
        where = error.filename2 or error.filename or folder
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        room = f"Make room and try again: {command}\n  or write" if full else "Write"
        raise FolderError(
            f"{where} can't be written: {error.strerror or error}.",
            hint=f"{room} into another folder: {command} --to DIR",
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
        work = [pool.submit(bring, home, job, file, into) for file, into in names.items()]
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
