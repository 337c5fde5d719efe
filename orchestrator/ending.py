"""Ending a run from anywhere: by its record, or by its tags when there is none to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator import kept, run
from orchestrator.aws import stack, sweep
from orchestrator.aws.tags import RUN
from orchestrator.clock import SystemClock
from orchestrator.errors import ApiError, CredentialsError, RunDamaged, RunNotFound, TeardownError
from orchestrator.opened import open_cloud, open_run
from orchestrator.run import EventKind, check_run_id
from orchestrator.settings import Settings

if TYPE_CHECKING:
    from orchestrator.console.live import Progress
    from orchestrator.settings import CloudName


def end_run(
    run_id: str, cloud: CloudName, progress: Progress, *, now: bool, why: str = ""
) -> None:
    """End a run and delete what carries its tag; without a readable record, by the tags alone.

    Boxes drain first, unless it must be `now`; the run's log then keeps `why`.

    Raises:
        RunNotFound: it's on no record, and nothing carries its tag.
        CredentialsError: none, or refused; nothing is forgotten, and the hint says what to do.
        TeardownError: something with the run's tag is left.
    """
    try:
        runner = open_run(run_id, cloud).runner(progress)
        if not now:
            runner.drain_boxes()
        elif why and not run.has(runner.log.read(), EventKind.TEARING_DOWN):
            runner.log.append(EventKind.TEARING_DOWN, SystemClock().now(), reason=why)
        runner.finish()
    except RunDamaged:
        _end_by_tags(run_id, cloud)
    except CredentialsError as error:
        error.hint = f"{error.hint}\n  {_by_hand(run_id)}"
        raise
    except ApiError:
        if not _is_off_record(run_id, cloud):  # the bucket is only slow, and jobs may still save
            raise
        _end_by_tags(run_id, cloud)
    except RunNotFound:
        if not _end_by_tags(check_run_id(run_id), cloud):
            raise
    kept.forget(Settings().home, run_id)


def _by_hand(run_id: str) -> str:
    """What somebody who has only the console can do, as far as this machine knows the run."""
    known = kept.recall(Settings().home, run_id)
    where = known[0].region if known else "each region"
    latest = f" by {known[0].expires_at:%Y-%m-%d %H:%M:%S} UTC" if known else ""
    return (
        f"Until then its boxes may run and bill; they end by themselves{latest}. By hand: EC2 "
        f"console, {where}, Instances, filter tag:{RUN}={run_id}, Terminate."
    )


def _is_off_record(run_id: str, cloud: CloudName) -> bool:
    """Whether the run's bucket, or what it held of the run, has gone meanwhile."""
    try:
        open_run(run_id, cloud)
    except RunNotFound:
        return True
    return False


def _end_by_tags(run_id: str, cloud: CloudName) -> bool:
    """Whether anything of the run was there, in any region."""
    session, now = open_cloud(cloud), SystemClock().now()
    seen = sweep.look(session)
    found = [place for place, of in seen.by_region.items() if run_id in {item.run for item in of}]
    left = [
        f"{item.kind} {item.id} {item.detail}".rstrip()
        for region in found
        for item in stack.teardown(session.in_region(region), run_id, now)
    ]
    left += [f"whatever is in {region}: {why}" for region, why in seen.unseen.items()]
    if left:
        raise TeardownError(
            f"Left behind by {run_id}: {', '.join(left)}", hint=f"Try again: gpurun down {run_id}"
        )
    return bool(found)
