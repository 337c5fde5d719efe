"""Launching a box: never two of one, in any zone or fallback type that has room.

A refusal is read by its code: full here, full by quota, not known yet, or cured by nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.aws.instances import (
    BoxRecord,
    find_boxes,
    record_of,
    terminate,
    wait_terminated,
)
from orchestrator.aws.launch_request import LaunchRequest, check_size, client_token, run_request
from orchestrator.aws.network import Network
from orchestrator.aws.refusals import (
    AUTH,
    CAPACITY,
    QUOTA,
    boundary,
    code,
    is_unanswered,
    text,
)
from orchestrator.aws.waits import PROPAGATION_S
from orchestrator.errors import CapacityError, LaunchError, QuotaError

if TYPE_CHECKING:
    from orchestrator.aws.session import Session

__all__ = [
    "BoxRecord",
    "LaunchRequest",
    "client_token",
    "find_boxes",
    "launch",
    "run_request",
    "terminate",
    "wait_terminated",
]


@boundary()
def launch(session: Session, request: LaunchRequest, network: Network) -> BoxRecord:
    """The box's instance: the one that lives already, or a new one.

    Tries every zone for the first type, then for each fallback. Fresh roles, keys and subnets
    that EC2 doesn't know yet are waited for, a minute at most.

    Raises:
        CapacityError: no zone has any of the types now.
        QuotaError: the account may not run any of the types on top of what it runs.
        LaunchError: EC2 refuses for a reason that another zone can't cure.
        ApiError: no answer; call again, the same attempt yields the same instance.
    """
    check_size(request)
    present = _alive(session, request)
    if present:
        return _only_one(session, present)
    return _first_with_room(session, request, network)


def _alive(session: Session, request: LaunchRequest) -> list[BoxRecord]:
    found = find_boxes(session, request.tags.run_id, request.box)
    return [record for record in found if record.alive]


def _first_with_room(session: Session, request: LaunchRequest, network: Network) -> BoxRecord:
    full: list[str] = []
    over_quota: list[str] = []
    for instance_type in request.instance_types:
        for zone in network.subnets:
            try:
                made = _run(session, request, network, instance_type, zone)
            except Exception as error:
                if code(error) in CAPACITY:
                    full.append(f"{instance_type} in {zone}: {text(error)}")
                    continue
                if code(error) in QUOTA:
                    over_quota.append(f"{instance_type}: {text(error)}")
                    break
                raise
            return _only_one(session, [made, *_alive(session, request)])
    raise _no_room(request, full, over_quota)


def _run(
    session: Session, request: LaunchRequest, network: Network, instance_type: str, zone: str
) -> BoxRecord:
    ec2 = session.client("ec2", fast=True)
    parameters = run_request(request, network, instance_type, zone)
    try:
        answer = session.patience.retry(
            lambda: ec2.run_instances(**parameters),
            when=lambda error: is_unanswered(error) or _not_known_yet(error),
            timeout_s=PROPAGATION_S,
        )
    except Exception as error:
        if code(error) == "IdempotentParameterMismatch":
            return _launched_before(session, request)
        if code(error) == "IdempotentInstanceTerminated":
            raise _used_up(request) from error
        if not code(error) or is_unanswered(error) or code(error) in AUTH | CAPACITY | QUOTA:
            raise
        raise _refused(request, error) from error
    made = record_of(answer["Instances"][0])
    if not made.alive:
        raise _used_up(request)
    return made


def _launched_before(session: Session, request: LaunchRequest) -> BoxRecord:
    """The token was used with other parameters: an instance exists, and will be listed soon."""
    found = session.patience.until(
        lambda: _alive(session, request) or None, timeout_s=PROPAGATION_S
    )
    if not found:
        raise _used_up(request)
    return found[0]


def _only_one(session: Session, found: list[BoxRecord]) -> BoxRecord:
    """Two controllers may have launched the box in two zones: both keep the older instance."""
    by_id = {record.instance_id: record for record in found}
    oldest_first = sorted(by_id.values(), key=lambda box: (box.launched_at, box.instance_id))
    terminate(session, [box.instance_id for box in oldest_first[1:]])
    return oldest_first[0]


def _not_known_yet(error: Exception) -> bool:
    """Something that this run has just made; an unknown image is not among that."""
    if code(error) == "InvalidParameterValue":
        return "iam instance profile" in text(error).lower()
    return code(error) in (
        "InvalidGroup.NotFound",
        "InvalidKeyPair.NotFound",
        "InvalidSubnetID.NotFound",
        "NoSuchEntity",
    )


def _no_room(
    request: LaunchRequest, full: list[str], over_quota: list[str]
) -> CapacityError | QuotaError:
    tried = "\n".join(f"    {line}" for line in (*full, *over_quota))
    if over_quota and not full:
        return QuotaError(
            f"The account's quota has no room for {request.box}:\n{tried}",
            hint="Ask AWS for more vCPUs (Service Quotas, EC2), or end what else runs there.",
        )
    return CapacityError(
        f"No room for {request.box} now:\n{tried}",
        hint="Try later, add `fallbacks` to the box, or choose another region.",
    )


def _used_up(request: LaunchRequest) -> LaunchError:
    return LaunchError(
        f"Attempt {request.attempt} of {request.box} was launched before and has ended",
        hint="Launch it as the next attempt.",
    )


def _refused(request: LaunchRequest, error: Exception) -> LaunchError:
    return LaunchError(
        f"EC2 refuses to launch {request.box}: {code(error)}: {text(error)}",
        hint="Another zone can't cure this; `gpurun down` removes what was built so far.",
    )
