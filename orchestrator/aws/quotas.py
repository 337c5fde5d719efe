"""How many vCPUs the account may run of a quota's families, and how many it runs.

On-demand and spot instances are counted apart, each against a quota of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.aws.refusals import Refusal, boundary, classify, code
from orchestrator.aws.tags import where

if TYPE_CHECKING:
    from orchestrator.aws.session import Session

_G_AND_VT = ("g", "gr", "vt")
_STANDARD = ("a", "c", "d", "h", "i", "m", "r", "t", "z")


@dataclass(frozen=True)
class Quota:
    """What a quota of EC2 counts. A family belongs to it by its letters: `gr` of `gr6.4xlarge`."""

    families: tuple[str, ...]
    spot: bool = False


# As Service Quotas names them: "Running On-Demand G and VT instances", "All G and VT Spot
# Instance Requests", "Running On-Demand P instances", "… Standard (A, C, D, H, I, M, R, T, Z) …".
QUOTAS: dict[str, Quota] = {
    "L-DB2E81BA": Quota(_G_AND_VT),
    "L-3819A6DF": Quota(_G_AND_VT, spot=True),
    "L-417A185B": Quota(("p",)),
    "L-1216C47A": Quota(_STANDARD),
}


@dataclass(frozen=True)
class QuotaUse:
    """vCPUs: what is allowed at once, and what is pending or running now."""

    limit: int
    used: int


@boundary()
def vcpu_use(session: Session, code: str) -> QuotaUse | None:
    """Limit and use of a quota; None when the service doesn't say, or may not be asked.

    Raises:
        CredentialsError: none, or refused.
    """
    limit = _limit(session, code)
    if limit is None or code not in QUOTAS:
        return None
    return QuotaUse(limit=limit, used=_used(session, QUOTAS[code]))


def _limit(session: Session, quota: str) -> int | None:
    """RunInstances has the last word: a quota that can't be read must not stop a run."""
    client = session.client("service-quotas", fast=True)
    try:
        answer = client.get_service_quota(ServiceCode="ec2", QuotaCode=quota)
    except Exception as error:
        if classify(error) is Refusal.AUTH or not code(error):
            raise
        return None
    return int(answer["Quota"]["Value"])


def _used(session: Session, quota: Quota) -> int:
    running = _running(session, spot=quota.spot)
    counted = [name for name in running if _family(name) in quota.families]
    sizes = _vcpus(session, set(counted))
    return sum(sizes[name] for name in counted)


def _running(session: Session, *, spot: bool) -> list[str]:
    """Types of the instances that count; stopped ones don't."""
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
        if (instance.get("InstanceLifecycle") == "spot") is spot
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
