"""What holds a thing of ours and isn't ours: named, so that a person can act, and never deleted.

Asked only about what a teardown had to leave behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator.aws.kinds import attached_to
from orchestrator.aws.leftover import Leftover
from orchestrator.aws.refusals import Refusal, boundary, classify, missing_is_fine
from orchestrator.aws.tags import RUN, as_map, where

if TYPE_CHECKING:
    from orchestrator.aws.session import Session


@boundary()
def explained(session: Session, left: list[Leftover]) -> list[Leftover]:
    """The same, each with what holds it; who may not look is told what was left anyway."""
    try:
        return [_with_holders(item, sorted(set(_holders(session, item)))) for item in left]
    except Exception as error:
        if classify(error) is not Refusal.DENIED:
            raise
        return left


def is_of(run_id: str, row: Any) -> bool:
    """Whether something that EC2 describes carries the run's tag."""
    return as_map(row.get("Tags") or row.get("TagSet") or []).get(RUN) == run_id


def interface_words(row: Any) -> str:
    """An interface, what uses it, and how it is described."""
    said = f" '{row['Description']}'" if row.get("Description") else ""
    return f"network-interface {row['NetworkInterfaceId']} ({attached_to(row)}{said})"


def _with_holders(item: Leftover, holders: list[str]) -> Leftover:
    if not holders:
        return item
    words = f"{item.detail}, held by {'; '.join(holders)}"
    return replace(item, detail=words.removeprefix(", "))


def _holders(session: Session, item: Leftover) -> Iterator[str]:
    if item.kind == "vpc":
        yield from _in_vpc(session, item)
    elif item.kind == "subnet":
        yield from _interfaces(session, item, "subnet-id")
    elif item.kind == "security-group":
        yield from _interfaces(session, item, "group-id")
        yield from _naming_groups(session, item)
    elif item.kind == "role":
        yield from _on_role(session, item.id)


def _interfaces(session: Session, item: Leftover, by: str) -> Iterator[str]:
    found = session.client("ec2").describe_network_interfaces(Filters=[where(by, item.id)])
    for row in found["NetworkInterfaces"]:
        yield interface_words(row)


def _naming_groups(session: Session, item: Leftover) -> Iterator[str]:
    """Groups of any VPC one of whose rules names this one."""
    pages = session.client("ec2").get_paginator("describe_security_groups").paginate()
    for group in (group for page in pages for group in page["SecurityGroups"]):
        rules: list[Any] = [*group["IpPermissions"], *group["IpPermissionsEgress"]]
        named = {
            pair.get("GroupId") for rule in rules for pair in rule.get("UserIdGroupPairs", [])
        }
        if item.id in named and group["GroupId"] != item.id:
            yield f"security-group {group['GroupId']} '{group['GroupName']}' (a rule names it)"


def _on_role(session: Session, name: str) -> Iterator[str]:
    iam = session.client("iam")
    with missing_is_fine():
        for policy in iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]:
            yield f"policy {policy['PolicyArn']} (attached)"
        for inline in iam.list_role_policies(RoleName=name)["PolicyNames"]:
            yield f"policy '{inline}' (inline)"
        for profile in iam.list_instance_profiles_for_role(RoleName=name)["InstanceProfiles"]:
            yield f"instance-profile {profile['InstanceProfileName']}"


def _in_vpc(session: Session, item: Leftover) -> Iterator[str]:
    ec2: Any = session.client("ec2")
    for operation, key, by, words in _IN_A_VPC:
        argument = "Filter" if operation == "describe_nat_gateways" else "Filters"
        for page in ec2.get_paginator(operation).paginate(**{argument: [where(by, item.id)]}):
            for row in _flat(page[key]):
                told_of = is_of(item.run, row) and not _is_going(row)
                said = None if told_of else words(row)
                if said:
                    yield said


def _is_going(row: Any) -> bool:
    """Deleted already, so that nobody lists it as left; but it isn't gone."""
    return str(row.get("State", "")).lower() == "deleting"


def _flat(rows: list[Any]) -> Iterator[Any]:
    """Instances come in reservations."""
    for row in rows:
        yield from row.get("Instances", [row])


def _called(row: Any, kind: str, key: str) -> str:
    name = as_map(row.get("Tags") or []).get("Name") or row.get("GroupName", "")
    return f"{kind} {row[key]}" + (f" '{name}'" if name else "")


def _instance(row: Any) -> str | None:
    over = row["State"]["Name"] == "terminated"
    return None if over else _called(row, "instance", "InstanceId")


def _nat(row: Any) -> str | None:
    return None if row["State"] == "deleted" else _called(row, "nat-gateway", "NatGatewayId")


def _endpoint(row: Any) -> str | None:
    over = str(row.get("State", "")).lower() in ("deleted", "rejected")
    return None if over else _called(row, "vpc-endpoint", "VpcEndpointId")


def _group(row: Any) -> str | None:
    """The default one goes with its VPC."""
    is_default = row["GroupName"] == "default"
    return None if is_default else _called(row, "security-group", "GroupId")


def _table(row: Any) -> str | None:
    is_main = any(link.get("Main") for link in row["Associations"])
    return None if is_main else _called(row, "route-table", "RouteTableId")


_Words = Callable[[Any], str | None]
_IN_A_VPC: tuple[tuple[str, str, str, _Words], ...] = (
    ("describe_network_interfaces", "NetworkInterfaces", "vpc-id", interface_words),
    ("describe_instances", "Reservations", "vpc-id", _instance),
    ("describe_nat_gateways", "NatGateways", "vpc-id", _nat),
    ("describe_vpc_endpoints", "VpcEndpoints", "vpc-id", _endpoint),
    (
        "describe_subnets",
        "Subnets",
        "vpc-id",
        lambda row: _called(row, "subnet", "SubnetId"),
    ),
    ("describe_security_groups", "SecurityGroups", "vpc-id", _group),
    ("describe_route_tables", "RouteTables", "vpc-id", _table),
    (
        "describe_internet_gateways",
        "InternetGateways",
        "attachment.vpc-id",
        lambda row: _called(row, "internet-gateway", "InternetGatewayId"),
    ),
)
