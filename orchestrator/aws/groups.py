"""The run's security group: everything out, nothing in but SSH from one address."""

from __future__ import annotations

import ipaddress
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.aws.refusals import code, is_missing, missing_is_fine
from orchestrator.aws.removal import all_of, remove
from orchestrator.aws.tags import RunTags, named, of_run, where
from orchestrator.aws.waits import PROPAGATION_S
from orchestrator.errors import ApiError

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, IpPermissionTypeDef, SecurityGroupTypeDef
    from mypy_boto3_ec2.type_defs import IpPermissionOutputTypeDef as Rule

    from orchestrator.aws.session import Session

SSH_PORT = 22


def door(ssh_cidr: str | None) -> IpPermissionTypeDef | None:
    """The one rule that lets anybody in; None for nobody.

    Raises:
        ApiError: not the address of one machine.
    """
    if ssh_cidr is None:
        return None
    try:
        address = ipaddress.IPv4Address(ssh_cidr.removesuffix("/32"))
    except ValueError:
        address = None
    if address is None or not ssh_cidr.endswith("/32"):
        raise ApiError(f"SSH may be opened to one IPv4 address (a.b.c.d/32), not to {ssh_cidr!r}")
    return {
        "IpProtocol": "tcp",
        "FromPort": SSH_PORT,
        "ToPort": SSH_PORT,
        "IpRanges": [{"CidrIp": ssh_cidr, "Description": "SSH from the caller"}],
    }


def ensure_group(
    session: Session, tags: RunTags, vpc_id: str, wanted: IpPermissionTypeDef | None
) -> str:
    """The group, in which `wanted` is the only way in; other rules are taken out."""
    group_id = _find_or_create(session, tags, vpc_id)
    group = session.patience.until(
        lambda: next(iter(_described(session, where("group-id", group_id))), None),
        timeout_s=PROPAGATION_S,
    )
    present = group["IpPermissions"] if group else []
    _revoke(session, group_id, [rule for rule in present if not _same(rule, wanted)])
    if wanted and not any(_same(rule, wanted) for rule in present):
        _authorize(session, group_id, wanted)
    return group_id


def delete_groups(session: Session, vpc_id: str, run_id: str) -> None:
    """Delete the run's groups; the default one goes with the VPC."""
    ec2 = session.client("ec2")
    groups = _described(session, where("vpc-id", vpc_id), *of_run(run_id))
    for group in groups:
        _cut_loose(session, group)
    all_of(
        partial(remove, session, ec2.delete_security_group, GroupId=group["GroupId"])
        for group in groups
    )


def _find_or_create(session: Session, tags: RunTags, vpc_id: str) -> str:
    ec2 = session.client("ec2")
    found = _described(session, *of_run(tags.run_id), where("vpc-id", vpc_id))
    if found:
        return min(group["GroupId"] for group in found)
    return session.patience.retry(
        lambda: ec2.create_security_group(
            GroupName=named(tags.run_id),
            Description=f"Boxes of the run {tags.run_id}",
            VpcId=vpc_id,
            TagSpecifications=tags.spec("security-group", role="sg"),
        ),
        when=is_missing,
        timeout_s=PROPAGATION_S,
    )["GroupId"]


def _authorize(session: Session, group_id: str, rule: IpPermissionTypeDef) -> None:
    try:
        session.client("ec2").authorize_security_group_ingress(
            GroupId=group_id, IpPermissions=[rule]
        )
    except Exception as error:
        if code(error) != "InvalidPermission.Duplicate":
            raise


def _revoke(session: Session, group_id: str, rules: list[Rule]) -> None:
    if rules:
        with missing_is_fine():
            session.client("ec2").revoke_security_group_ingress(
                GroupId=group_id, IpPermissions=rules
            )


def _cut_loose(session: Session, group: SecurityGroupTypeDef) -> None:
    """Groups that name each other can't be deleted in any order."""
    ec2, group_id = session.client("ec2"), group["GroupId"]
    into = [rule for rule in group["IpPermissions"] if rule.get("UserIdGroupPairs")]
    out_of = [rule for rule in group["IpPermissionsEgress"] if rule.get("UserIdGroupPairs")]
    with missing_is_fine():
        if into:
            ec2.revoke_security_group_ingress(GroupId=group_id, IpPermissions=into)
        if out_of:
            ec2.revoke_security_group_egress(GroupId=group_id, IpPermissions=out_of)


def _described(session: Session, *filters: FilterTypeDef) -> list[SecurityGroupTypeDef]:
    return session.client("ec2").describe_security_groups(Filters=filters)["SecurityGroups"]


def _same(rule: Rule, wanted: IpPermissionTypeDef | None) -> bool:
    """Whether a rule opens exactly what is wanted, and nothing else."""
    others = ("Ipv6Ranges", "PrefixListIds", "UserIdGroupPairs")
    if wanted is None or any(rule.get(key) for key in others):
        return False
    ports = all(rule.get(key) == wanted.get(key) for key in ("IpProtocol", "FromPort", "ToPort"))
    return ports and _cidrs(rule) == _cidrs(wanted)


def _cidrs(rule: Rule | IpPermissionTypeDef) -> list[str]:
    return [entry["CidrIp"] for entry in rule.get("IpRanges", [])]
