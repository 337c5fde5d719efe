"""Whether what the box made came home: synced while it ran, flushed before it powered off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from orchestrator import results
from orchestrator.proof.design import JOB, Timing

if TYPE_CHECKING:
    from orchestrator.aws.bucket import Bucket
    from orchestrator.proof.checks import Checks

ACCESS, TICKS, FINAL = "access.json", "ticks.txt", "final.json"
ALLOWED = ("put-own", "get-own")
REFUSED = ("delete-own", "put-outside", "get-outside", "list-outside")
DENIED = "AccessDenied"


def check_saved(bucket: Bucket, run_id: str, to: Path, timing: Timing, checks: Checks) -> None:
    """Pull and verify, and record what the files say."""
    pulled = results.pull(bucket, run_id, to, [JOB])
    job, folder = pulled.jobs[JOB], pulled.folder / JOB / "out"
    whole = not job.problems and job.ended in ("cut", "done") and job.files > 0
    said = "; ".join(job.problems) or f"{job.files} files, manifest {job.seq}, {job.ended}"
    checks.record("pulled and verified", whole, said)
    lines, last = _ticks(folder / TICKS), _json(folder / FINAL).get("last")
    kept = bool(lines) and lines == list(range(len(lines))) and last == lines[-1]
    checks.record("saved before power-off", kept, f"{len(lines)} lines, the last is {last}")
    _check_loss(list(_commit_times(bucket, run_id)), timing, checks)
    check_access({key: str(said) for key, said in _json(folder / ACCESS).items()}, checks)


def check_access(answers: dict[str, str], checks: Checks) -> None:
    """What S3 told the box itself when it tried."""
    if not answers:
        checks.record("box: S3 rights", ok=False, detail="the box reported nothing")
        return
    for name in ALLOWED:
        checks.record(f"box may {name}", answers.get(name) == "ok", answers.get(name, "untried"))
    for name in REFUSED:
        refused = answers.get(name) == DENIED
        checks.record(f"box may not {name}", refused, answers.get(name, "untried"))


def _check_loss(times: list[float], timing: Timing, checks: Checks) -> None:
    """Between two commits lies what a box that died there would have lost."""
    gaps = [after - before for before, after in pairwise(times)]
    longest = max(gaps, default=None)
    ok = longest is not None and longest <= timing.loss_bound
    said = f"{len(times)} commits, at most so far apart; the bound is {timing.loss_bound} s"
    checks.record("loss bound", ok, said, longest)


def _commit_times(bucket: Bucket, run_id: str) -> Iterator[float]:
    for key, _ in bucket.keys(f"runs/{run_id}/jobs/{JOB}/manifests/"):
        try:
            yield results.Manifest.model_validate_json(bucket.get(key) or b"").at
        except ValidationError:
            continue


def _ticks(path: Path) -> list[int]:
    if not path.is_file():
        return []
    words = [line.split(" ")[0] for line in path.read_text("utf-8").splitlines()]
    return [int(word) if word.isdecimal() else -1 for word in words]


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
