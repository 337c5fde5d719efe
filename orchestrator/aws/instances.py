"""The instances behind a run's boxes: found by tag, ended by id, waited for within bounds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from orchestrator.aws import tags as tag
from orchestrator.aws.refusals import boundary, code, is_missing
from orchestrator.aws.tags import as_map, of_run, parse_count, parse_price, where

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef, StateReasonTypeDef

    from orchestrator.aws.session import Session

SSH_PORT = 22

# What a box may still cost: a stopped one keeps its volume. Compute ends with `shutting-down`.
ALIVE = ("pending", "running", "stopping", "stopped")
_ASKED_FOR = ("Client.InstanceInitiatedShutdown", "Client.UserInitiatedShutdown")
_HINTS = {
    "Client.InternalError": "often the key that encrypts disks by default (EC2 settings, EBS "
    "encryption) may not be used by who launches"
}
_ENDED = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


@dataclass(frozen=True)
class BoxRecord:
    """What EC2 says of one instance of a run. Times are UTC."""

    box: str
    instance_id: str
    instance_type: str
    zone: str
    state: str
    """EC2's word: pending, running, shutting-down, terminated, stopping or stopped."""
    reason: str
    """EC2's code: `Client.InstanceInitiatedShutdown` is the box's own power-off; empty if none.
    Of a launch that failed in EC2 its words as well.
    """
    launched_at: datetime
    ended_at: datetime | None
    ip: str | None
    ssh_port: int
    attempt: int = 1
    price_usd_per_hour: Decimal | None = None

    @property
    def alive(self) -> bool:
        """It isn't ending and hasn't ended."""
        return self.state in ALIVE


@boundary()
def find_boxes(
    session: Session, run_id: str, box: str | None = None, *, known: Iterable[str] = ()
) -> list[BoxRecord]:
    """Every instance with the run's tag that EC2 still lists, ended ones too, in launch order.

    EC2 forgets a terminated instance after about an hour, and takes its tags off before (EC2 User
    Guide, "Terminate Amazon EC2 instances"): those of the `known` ids that no tag finds are asked
    for by id. Of them nothing is told that only tags say.
    """
    filters = of_run(run_id, box=box) if box else of_run(run_id)
    records = [record_of(instance) for instance in _described(session, filters)]
    if lacking := sorted({*known} - {record.instance_id for record in records}):
        found = _described(session, [where("instance-id", *lacking)])
        records += [record_of(instance) for instance in found]
    return sorted(records, key=lambda record: (record.launched_at, record.instance_id))


@boundary()
def terminate(session: Session, ids: Iterable[str]) -> None:
    """End instances; unknown and ended ones are fine, protected ones lose their protection."""
    wanted = sorted(set(ids))
    if not wanted:
        return
    try:
        session.client("ec2").terminate_instances(InstanceIds=wanted)
    except Exception as error:
        if is_missing(error) and len(wanted) > 1:
            # One unknown id fails the call for all of them.
            for instance_id in wanted:
                terminate(session, [instance_id])
        elif code(error) == "OperationNotPermitted":
            _unprotect(session, wanted)
            session.client("ec2").terminate_instances(InstanceIds=wanted)
        elif not is_missing(error):
            raise


@boundary()
def wait_terminated(session: Session, ids: Sequence[str], timeout_s: float) -> tuple[str, ...]:
    """Wait until EC2 calls them terminated or has forgotten them; returns those it doesn't."""
    if not ids:
        return ()
    ended = session.patience.until(
        lambda: None if _unended(session, ids) else True, timeout_s=timeout_s
    )
    return () if ended else _unended(session, ids)


def record_of(instance: InstanceTypeDef) -> BoxRecord:
    """An instance as RunInstances or DescribeInstances describe it."""
    tags = as_map(instance.get("Tags", []))
    ended = _ENDED.search(instance.get("StateTransitionReason", ""))
    return BoxRecord(
        box=tags.get(tag.BOX, ""),
        instance_id=instance["InstanceId"],
        instance_type=instance["InstanceType"],
        zone=instance.get("Placement", {}).get("AvailabilityZone", ""),
        state=instance["State"]["Name"],
        reason=_reason(instance.get("StateReason", {})),
        launched_at=instance["LaunchTime"].astimezone(UTC),
        ended_at=datetime.fromisoformat(f"{ended[1]}+00:00") if ended else None,
        ip=instance.get("PublicIpAddress"),
        ssh_port=parse_count(tags.get(tag.SSH_PORT), SSH_PORT),
        attempt=parse_count(tags.get(tag.ATTEMPT), 1),
        price_usd_per_hour=parse_price(tags.get(tag.PRICE)),
    )


def _reason(said: StateReasonTypeDef) -> str:
    code, words = said.get("Code", ""), said.get("Message", "")
    if code in _ASKED_FOR or not code.startswith("Client."):
        return code
    told = words if words.startswith(code) else f"{code}: {words}"
    return "; ".join(part for part in (told, _HINTS.get(code, "")) if part)


def _described(session: Session, filters: list[FilterTypeDef]) -> list[InstanceTypeDef]:
    pages = session.client("ec2").get_paginator("describe_instances").paginate(Filters=filters)
    return [
        instance
        for page in pages
        for reservation in page["Reservations"]
        for instance in reservation["Instances"]
    ]


def _unended(session: Session, ids: Sequence[str]) -> tuple[str, ...]:
    """Asked by filter: an id that EC2 has forgotten is no error then."""
    found = _described(session, [where("instance-id", *ids)])
    return tuple(i["InstanceId"] for i in found if i["State"]["Name"] != "terminated")


def _unprotect(session: Session, ids: Sequence[str]) -> None:
    """Those that have ended or are gone need no protection taken off."""
    ec2 = session.client("ec2")
    for instance_id in ids:
        try:
            ec2.modify_instance_attribute(
                InstanceId=instance_id, DisableApiTermination={"Value": False}
            )
        except Exception as error:
            if not is_missing(error) and code(error) != "IncorrectInstanceState":
                raise
