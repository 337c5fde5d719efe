"""How many vCPUs the account may run of a quota's families, and how many it runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.aws.refusals import AUTH, boundary, code
from orchestrator.aws.tags import where

if TYPE_CHECKING:
    from orchestrator.aws.session import Session

# Families by quota: Service Quotas' "Running On-Demand G and VT instances" and "… P instances".
FAMILIES: dict[str, tuple[str, ...]] = {
    "L-DB2E81BA": ("g", "gr", "vt"),
    "L-417A185B": ("p",),
}


@dataclass(frozen=True)
class QuotaUse:
    """vCPUs: what is allowed at once, and what is pending or running now."""

    limit: int
    used: int


@boundary()
def on_demand_vcpus(session: Session, code: str) -> QuotaUse | None:
    """Limit and use of a quota; None when the service doesn't say, or may not be asked.

    Raises:
        CredentialsError: none, or refused.
    """
    limit = _limit(session, code)
    if limit is None or code not in FAMILIES:
        return None
    return QuotaUse(limit=limit, used=_used(session, FAMILIES[code]))


def _limit(session: Session, quota: str) -> int | None:
    """RunInstances has the last word: a quota that can't be read must not stop a run."""
    client = session.client("service-quotas", fast=True)
    try:
        answer = client.get_service_quota(ServiceCode="ec2", QuotaCode=quota)
    except Exception as error:
        if code(error) in AUTH or not code(error):
            raise
        return None
    return int(answer["Quota"]["Value"])


def _used(session: Session, families: tuple[str, ...]) -> int:
    running = [name for name in _running(session) if _family(name) in families]
    sizes = _vcpus(session, set(running))
    return sum(sizes[name] for name in running)


def _running(session: Session) -> list[str]:
    """Types of the on-demand instances that count; stopped ones don't."""
    pages = (
        session.client("ec2")
        .get_paginator("describe_instances")
        .paginate(Filters=[where("instance-state-name", "pending", "running")])
    )
    return [
        instance["InstanceType"]
        for page in pages
        for reservation in page["Reservations"]
        for instance in reservation["Instances"]
        if not instance.get("InstanceLifecycle")
    ]


def _family(instance_type: str) -> str:
    """`gr` of `gr6.4xlarge`."""
    return re.split(r"\d", instance_type, maxsplit=1)[0]


def _vcpus(session: Session, types: set[str]) -> dict[str, int]:
    """vCPUs by type. A quota counts the type's default, whatever CpuOptions say."""
    if not types:
        return {}
    pages = (
        session.client("ec2")
        .get_paginator("describe_instance_types")
        .paginate(Filters=[where("instance-type", *sorted(types))])
    )
    return {
        entry["InstanceType"]: entry["VCpuInfo"]["DefaultVCpus"]
        for page in pages
        for entry in page["InstanceTypes"]
    }
