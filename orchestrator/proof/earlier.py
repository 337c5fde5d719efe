"""What an earlier proof left when its process died: found by tag, and ended before the next."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.aws import stack, sweep
from orchestrator.errors import GpurunError, TeardownError
from orchestrator.proof.design import NAME

if TYPE_CHECKING:
    from datetime import datetime

    from orchestrator.aws.bucket import Bucket
    from orchestrator.proof.checks import Checks

_VICTIM = f"{NAME}-sweep-"


@contextmanager
def only_one(home: Path) -> Iterator[None]:
    """One proof at a time on this machine; the lock goes with the process that holds it.

    Raises:
        GpurunError: another is going on.
    """
    home.mkdir(parents=True, exist_ok=True)
    with (home / "kill-proof.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise GpurunError(
                "Another kill-proof is going on on this machine.", hint="Wait for its end."
            ) from error
        yield


def victim_of(run_id: str) -> str:
    """The second run of a proof, whose one box only a sweep ends."""
    return _VICTIM + run_id.removeprefix(f"{NAME}-")


def note(bucket: Bucket, run_id: str, owner: str) -> None:
    """Write down whose proof it is, before it creates anything."""
    bucket.put(_key(run_id), json.dumps({"owner": owner}).encode())


def end_earlier(bucket: Bucket, owner: str, now: datetime, checks: Checks) -> None:
    """End what this person's earlier proofs of this region left, and any that is past its expiry.

    The caller holds the lock, so none of this person's is going on here.

    Raises:
        TeardownError: something didn't go.
    """
    session = bucket.session
    seen = sweep.look(session, [session.region]).by_region.get(session.region, [])
    over = set(sweep.expired(seen, now))
    found = sorted({item.run for item in seen if item.run.startswith(f"{NAME}-")})
    for run_id in found:
        if run_id not in over and _owner(bucket, _proof_of(run_id)) != owner:
            checks.skip(
                "an earlier proof", f"{run_id} is somebody else's, and not past its expiry"
            )
            continue
        left = stack.teardown(session, run_id, now)
        if left:
            names = ", ".join(f"{item.kind} {item.id}" for item in left)
            raise TeardownError(
                f"Left behind by {run_id}: {names}", hint=f"Try again: gpurun down {run_id}"
            )
        checks.record("an earlier proof", ok=True, detail=f"{run_id} had died; all of it is gone")


def _proof_of(run_id: str) -> str:
    return run_id.replace(_VICTIM, f"{NAME}-", 1)


def _key(run_id: str) -> str:
    return f"runs/{run_id}/proof.json"


def _owner(bucket: Bucket, run_id: str) -> str:
    try:
        return str(json.loads(bucket.get(_key(run_id)) or b"{}").get("owner", ""))
    except (ValueError, AttributeError):
        return ""
