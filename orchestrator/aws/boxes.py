"""Launching a box: never two of one, in any zone or fallback type that has room.

What a refusal means is decided by `refusals.classify` alone: full here, full by quota, not known
yet, or cured by nothing. The caller writes each try down before it is made, and after a crash the
last one is made again first: its answer may have got lost, and its ClientToken finds its instance.
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
from orchestrator.aws.quotas import vcpu_use
from orchestrator.aws.refusals import (
    Refusal,
    boundary,
    classify,
    code,
    is_not_known_yet,
    is_unanswered,
    text,
)
from orchestrator.aws.waits import PROPAGATION_S, VISIBLE_S
from orchestrator.errors import CapacityError, GpurunError, LaunchError, QuotaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.aws.session import Session

__all__ = [
    "BoxRecord",
    "LaunchRequest",
    "Place",
    "client_token",
    "find_boxes",
    "launch",
    "run_request",
    "terminate",
    "wait_terminated",
]


Place = tuple[str, str]
"""Instance type and zone."""

# Refusals that mean the same to every caller; the others are a launch that can't be.
_AS_THEY_ARE = (
    Refusal.AUTH,
    Refusal.CAPACITY,
    Refusal.QUOTA,
    Refusal.THROTTLED,
    Refusal.UNANSWERED,
)


@boundary()
def launch(
    session: Session,
    request: LaunchRequest,
    network: Network,
    *,
    last_try: Place | None = None,
    before: Callable[[str, str], None] = lambda *_: None,
    after: Callable[[BoxRecord], None] = lambda _: None,
) -> BoxRecord:
    """The box's instance: the one that lives already, or a new one.

    Tries every zone for the first type, then for each fallback; `before` is told type and zone of
    each try, and `after` of what it made, before anything else is asked. `last_try` is where an
    earlier controller tried last. Fresh roles, keys and subnets that EC2 doesn't know yet, and a
    throttle, are waited for, a minute at most.

    Raises:
        CapacityError: no zone has any of the types now.
        QuotaError: the account may not run any of the types on top of what it runs.
        LaunchError: EC2 refuses for a reason that another zone can't cure; or this attempt has
            ended already, which `used_up` tells.
        ApiError: no answer; call again, the same attempt yields the same instance.
    """
    check_size(request)
    present = _alive(session, request)
    if present:
        return _only_one(session, present)
    places = _places(request, network, last_try)
    return _first_with_room(session, request, network, places, before, after)


def _places(request: LaunchRequest, network: Network, last_try: Place | None) -> list[Place]:
    """Every type in every zone, in the order of the plan but for the last try."""
    places = [(kind, zone) for kind in request.instance_types for zone in network.subnets]
    return sorted(places, key=lambda place: place != last_try)


def _alive(session: Session, request: LaunchRequest) -> list[BoxRecord]:
    found = find_boxes(session, request.tags.run_id, request.box)
    return [record for record in found if record.alive]


def _first_with_room(
    session: Session,
    request: LaunchRequest,
    network: Network,
    places: list[Place],
    before: Callable[[str, str], None],
    after: Callable[[BoxRecord], None],
) -> BoxRecord:
    full: list[str] = []
    over_quota: dict[str, str] = {}
    for instance_type, zone in places:
        if instance_type in over_quota:
            continue
        before(instance_type, zone)
        try:
            made = _run(session, request, network, instance_type, zone)
        except Exception as error:
            refusal = classify(error)
            if refusal is Refusal.CAPACITY:
                full.append(f"{instance_type} in {zone}: {text(error)}")
            elif refusal is Refusal.QUOTA:
                over_quota[instance_type] = f"{code(error)}: {text(error)}"
            else:
                raise
        else:
            after(made)
            return _only_one(session, [made, *_alive(session, request)])
    raise _no_room(session, request, full, over_quota)


def _run(
    session: Session, request: LaunchRequest, network: Network, instance_type: str, zone: str
) -> BoxRecord:
    ec2 = session.client("ec2", fast=True)
    parameters = run_request(request, network, instance_type, zone)
    try:
        answer = session.patience.retry(
            lambda: ec2.run_instances(**parameters),
            when=lambda error: is_unanswered(error) or is_not_known_yet(error),
            timeout_s=PROPAGATION_S,
        )
    except Exception as error:
        refusal = classify(error)
        if refusal is Refusal.USED_TOKEN:
            return _launched_before(session, request)
        if refusal is Refusal.ENDED_TOKEN:
            raise _used_up(request) from error
        if not code(error) or refusal in _AS_THEY_ARE:
            raise
        raise _refused(request, error) from error
    made = record_of(answer["Instances"][0])
    if not made.alive:
        raise _used_up(request)
    return made


def _launched_before(session: Session, request: LaunchRequest) -> BoxRecord:
    """The token was used with other parameters: an instance exists, and will be listed soon.

    Given up early, it would be called ended while it lives and bills.
    """
    found = session.patience.until(lambda: _alive(session, request) or None, timeout_s=VISIBLE_S)
    if not found:
        raise _used_up(request)
    return found[0]


def _only_one(session: Session, found: list[BoxRecord]) -> BoxRecord:
    """Two controllers may have launched the box in two zones: both keep the older instance."""
    by_id = {record.instance_id: record for record in found}
    oldest_first = sorted(by_id.values(), key=lambda box: (box.launched_at, box.instance_id))
    terminate(session, [box.instance_id for box in oldest_first[1:]])
    return oldest_first[0]


def _no_room(
    session: Session, request: LaunchRequest, full: list[str], over_quota: dict[str, str]
) -> CapacityError | QuotaError:
    lines = [*full, *(f"{kind}: {said}" for kind, said in over_quota.items())]
    tried = "\n".join(f"    {line}" for line in lines)
    if over_quota and not full:
        need = _need(session, request)
        return QuotaError(
            f"The account's quota has no room for {request.box}{need}:\n{tried}",
            hint="Ask AWS for more vCPUs (Service Quotas, EC2), or end what else runs there.",
        )
    return CapacityError(
        f"No room for {request.box} in {session.region} now:\n{tried}",
        hint="Try later, add `fallbacks` to the box, or choose another region.",
    )


def _need(session: Session, request: LaunchRequest) -> str:
    """What is needed and what there is, as far as it can be found out."""
    if not request.quota_code:
        return ""
    need = f", which needs {request.vcpus} vCPUs of {request.quota_code}"
    try:
        use = vcpu_use(session, request.quota_code)
    except GpurunError:
        return need
    return f"{need} ({use.limit} allowed, {use.used} in use)" if use else need


def _used_up(request: LaunchRequest) -> LaunchError:
    error = LaunchError(
        f"Attempt {request.attempt} of {request.box} was launched before and has ended",
        hint="Launch it as the next attempt.",
    )
    error.used_up = True
    return error


def _refused(request: LaunchRequest, error: Exception) -> LaunchError:
    return LaunchError(
        f"EC2 refuses to launch {request.box}: {code(error)}: {text(error)}",
        hint="Another zone can't cure this; `gpurun down` removes what was built so far.",
    )
