"""Which zones of a region offer an instance type to this account: names differ per account."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.aws.refusals import boundary
from orchestrator.aws.tags import where

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.aws.session import Session


@boundary()
def offered_zones(session: Session, instance_types: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Zones by instance type, sorted; a type that the region doesn't offer has none."""
    types = sorted(set(instance_types))
    found: dict[str, set[str]] = {name: set() for name in types}
    pages = (
        session.client("ec2")
        .get_paginator("describe_instance_type_offerings")
        .paginate(LocationType="availability-zone", Filters=[where("instance-type", *types)])
    )
    for page in pages:
        for offer in page["InstanceTypeOfferings"]:
            found[offer["InstanceType"]].add(offer["Location"])
    return {name: tuple(sorted(zones)) for name, zones in found.items()}


@boundary()
def open_zones(session: Session) -> frozenset[str]:
    """Zones where this account may make a subnet now."""
    answer = session.client("ec2").describe_availability_zones(
        Filters=[where("zone-type", "availability-zone")]
    )
    return frozenset(
        zone["ZoneName"]
        for zone in answer["AvailabilityZones"]
        if zone.get("State", "available") == "available"
        and zone.get("OptInStatus", "opt-in-not-required") != "not-opted-in"
    )
