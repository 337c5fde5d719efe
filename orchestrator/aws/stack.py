"""The whole of a run in the account: taken down in EC2's order, and what is left, by id.

Teardown knows nothing but the run's id. It may be killed anywhere and started again anywhere:
what is gone is fine, what fails doesn't stop the rest, and the check at the end looks afresh.
Nothing that a living box or its kill schedule needs is touched before the box has ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from orchestrator.aws import dead_letters, keys, network, role, schedules, secrets
from orchestrator.aws.blockers import explained
from orchestrator.aws.instances import BoxRecord, find_boxes, terminate, wait_terminated
from orchestrator.aws.leftover import Leftover, leftovers
from orchestrator.aws.refusals import boundary
from orchestrator.aws.removal import remove
from orchestrator.aws.tags import checked, named, of_run
from orchestrator.aws.waits import DEPENDENCY_S, PROPAGATION_S, TEARDOWN_S, TERMINATION_S
from orchestrator.errors import ApiError, CloudError, CredentialsError, GpurunError, TeardownError

if TYPE_CHECKING:
    from orchestrator.aws.session import Session

__all__ = ["Leftover", "end_boxes", "leftovers", "teardown"]

_log = logging.getLogger(__name__)

Step = Callable[["Session", str], None]


def teardown(session: Session, run_id: str, now: datetime) -> list[Leftover]:
    """Delete all of the run but its results; returns what is still there, and what holds it.

    Instances that RunInstances had only just made may show up late: while their network is waited
    for, which they hold, or in a second round.
    All waits together end in 25 minutes.

    Raises:
        RunNotFound: not a run's id.
        TeardownError: EC2 would not even be asked to end a box.
        CredentialsError: what can't be seen is not gone.
        CloudError: the local cloud doesn't answer.
        ApiError: the check at the end could not look.
    """
    session = session.within(TEARDOWN_S)
    stuck = _round(session, checked(run_id))
    left = leftovers(session, run_id)
    late = {item.id for item in left if item.kind == "instance"} - set(stuck)
    if late:
        _round(session, run_id)
        left = leftovers(session, run_id)
    return [item.aged(now) for item in explained(session, left)]


def end_boxes(session: Session, run_id: str, alive: Sequence[BoxRecord]) -> None:
    """Ask EC2 to end these boxes of the run.

    Raises:
        TeardownError: it would not; says when the cloud ends each by itself.
        CloudError: the local cloud doesn't answer.
    """
    try:
        terminate(session, [box.instance_id for box in alive])
    except CloudError:
        raise
    except GpurunError as error:
        raise _unconfirmed(session, run_id, alive, error) from error


def _round(session: Session, run_id: str) -> tuple[str, ...]:
    """End the boxes, then all the rest; returns instances that wouldn't end.

    Raises:
        CredentialsError: a step was refused for them: the others, of other services, were gone
            through all the same.
    """
    stuck = _end_boxes(session, run_id)
    refused = [] if stuck else [_go_on_after(step, session, run_id) for step in _STEPS]
    for error in filter(None, refused):
        raise error
    return stuck


def _end_boxes(session: Session, run_id: str) -> tuple[str, ...]:
    boxes = find_boxes(session, run_id)
    end_boxes(session, run_id, [box for box in boxes if box.alive])
    ids = [box.instance_id for box in boxes if box.state != "terminated"]
    return wait_terminated(session, ids, TERMINATION_S)


def _unconfirmed(
    session: Session, run_id: str, alive: Sequence[BoxRecord], error: GpurunError
) -> TeardownError:
    """Nobody knows that they end: they are not called ended anywhere."""
    boxes = "\n".join(
        f"    {box.box} {box.instance_id} may still run and bill; {_switch(session, run_id, box)}"
        for box in alive
    )
    return TeardownError(
        f"TERMINATION UNCONFIRMED: {error.message}\n{boxes}",
        hint=f"{error.hint} Then: gpurun down {run_id}".lstrip(),
    )


def _switch(session: Session, run_id: str, box: BoxRecord) -> str:
    """When the cloud ends it by itself."""
    try:
        at = schedules.fires_at(session, named(run_id, box.box)) or schedules.fires_at(
            session, schedules.guard_name(run_id, box.box)
        )
    except GpurunError:
        return "the cloud's switch can't be seen either: it fires at the run's last deadline"
    if at is None:
        return "the cloud has no switch for it: end it in the EC2 console"
    return (
        f"the cloud's switch ends it at {at:%Y-%m-%d %H:%M:%S} UTC; what still runs two minutes "
        "later nobody ends: end it in the EC2 console"
    )


def _go_on_after(step: Step, session: Session, run_id: str) -> CredentialsError | None:
    """A step that fails leaves something behind, which the check at the end names.

    One service may refuse credentials that the others take: that is returned.
    """
    try:
        step(session, run_id)
    except CloudError:
        raise
    except GpurunError as error:
        _log.warning("teardown of %s goes on after: %s", run_id, error.message)
        return error if isinstance(error, CredentialsError) else None
    return None


@boundary()
def _delete_volumes(session: Session, run_id: str) -> None:
    """Only what DeleteOnTermination didn't take."""
    ec2 = session.client("ec2")
    for page in ec2.get_paginator("describe_volumes").paginate(Filters=of_run(run_id)):
        for volume in page["Volumes"]:
            remove(session, ec2.delete_volume, VolumeId=volume["VolumeId"])


def _delete_network(session: Session, run_id: str) -> None:
    """An instance that RunInstances had only just made holds it, and shows up meanwhile."""
    try:
        network.delete_network(session.within(PROPAGATION_S), run_id)
    except ApiError:
        _end_boxes(session, run_id)
        network.delete_network(session.within(DEPENDENCY_S - PROPAGATION_S), run_id)


def _delete_letters(session: Session, run_id: str) -> None:
    """The last chance to tell what they say."""
    for letter in dead_letters.read_letters(session, run_id):
        _log.warning(
            "the cloud's own switch for %s of %s failed: %s", letter.box, run_id, letter.reason
        )
    dead_letters.delete_queue(session, run_id)


def _delete_roles(session: Session, run_id: str) -> None:
    """What IAM refuses because of its own delay passes in seconds; a person's policy doesn't."""
    role.delete_roles(session.within(PROPAGATION_S), run_id)


_STEPS: tuple[Step, ...] = (
    secrets.delete_secrets,
    _delete_volumes,
    _delete_network,
    keys.delete_key_pair,
    schedules.delete_kills,
    _delete_letters,
    _delete_roles,
)
