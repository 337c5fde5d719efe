"""EC2: security groups, their rules, and key pairs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tests.faults.cloud.ec2_ways import Ways
from tests.faults.cloud.filters import matching
from tests.faults.cloud.refusal import Refused
from tests.faults.cloud.service import tags_of
from tests.faults.cloud.things import Group, Json, Key, Rule


class Groups(Ways):
    def create_security_group(
        self,
        *,
        GroupName: str,
        Description: str,
        VpcId: str,
        TagSpecifications: Iterable[Any] = (),
    ) -> Json:
        vpc = self._vpc(VpcId)
        for group in self._region.groups.values():
            if group.vpc_id == vpc.id and group.name == GroupName:
                raise Refused(
                    "InvalidGroup.Duplicate",
                    f"The security group '{GroupName}' already exists for VPC '{VpcId}'",
                )
        group = Group(
            id=self._account.new_id("sg"),
            visible_at=self._account.visible_at(),
            tags=tags_of(TagSpecifications, "security-group"),
            vpc_id=vpc.id,
            name=GroupName,
            about=Description,
            out_of=[Rule("-1", None, None, "0.0.0.0/0")],
        )
        self._region.groups[group.id] = group
        return {"GroupId": group.id}

    def describe_security_groups(
        self, *, Filters: Iterable[Any] = (), GroupIds: Sequence[str] = ()
    ) -> Json:
        found = self._named("security-group", self._region.groups, GroupIds)
        return {"SecurityGroups": [group.describe() for group in matching(found, Filters)]}

    def authorize_security_group_ingress(self, *, GroupId: str, **rule: Any) -> Json:
        return self._add(self._group(GroupId).into, rule)

    def authorize_security_group_egress(self, *, GroupId: str, **rule: Any) -> Json:
        return self._add(self._group(GroupId).out_of, rule)

    def revoke_security_group_ingress(self, *, GroupId: str, **rule: Any) -> Json:
        return self._take(self._group(GroupId).into, rule)

    def revoke_security_group_egress(self, *, GroupId: str, **rule: Any) -> Json:
        return self._take(self._group(GroupId).out_of, rule)

    def delete_security_group(self, *, GroupId: str) -> Json:
        group = self._group(GroupId)
        if group.name == "default":
            raise Refused(
                "CannotDelete",
                f'the specified group: "{group.id}" name: "default" cannot be deleted by a user',
            )
        worn = any(GroupId in nic.groups for nic in self._region.interfaces.values())
        if worn or self._is_named_by_others(GroupId):
            raise Refused("DependencyViolation", f"resource {GroupId} has a dependent object")
        del self._region.groups[GroupId]
        return {}

    def import_key_pair(
        self, *, KeyName: str, PublicKeyMaterial: bytes, TagSpecifications: Iterable[Any] = ()
    ) -> Json:
        if any(key.name == KeyName for key in self._region.keys.values()):
            raise Refused("InvalidKeyPair.Duplicate", f"The keypair '{KeyName}' already exists.")
        key = Key(
            id=self._account.new_id("key"),
            visible_at=self._account.visible_at(),
            tags=tags_of(TagSpecifications, "key-pair"),
            name=KeyName,
            public=PublicKeyMaterial.decode(),
        )
        self._region.keys[key.id] = key
        print_ = hashlib.sha256(PublicKeyMaterial).hexdigest()
        return {"KeyName": KeyName, "KeyPairId": key.id, "KeyFingerprint": print_}

    def describe_key_pairs(
        self,
        *,
        Filters: Iterable[Any] = (),
        KeyNames: Sequence[str] = (),
        IncludePublicKey: bool = False,
    ) -> Json:
        found = [self._key(name) for name in KeyNames]
        shown = matching(found or self._account.visible(self._region.keys), Filters)
        return {
            "KeyPairs": [
                key.describe() | ({"PublicKey": key.public} if IncludePublicKey else {})
                for key in shown
            ]
        }

    def delete_key_pair(self, *, KeyName: str) -> Json:
        """Of a key that isn't there as well."""
        for key in [key for key in self._region.keys.values() if key.name == KeyName]:
            del self._region.keys[key.id]
        return {"Return": True}

    def _key(self, name: str) -> Key:
        for key in self._account.visible(self._region.keys):
            if key.name == name:
                return key
        raise Refused("InvalidKeyPair.NotFound", f"The key pair '{name}' does not exist")

    def _group(self, name: str) -> Group:
        return self._account.find(self._region.groups, "security-group", name)

    def _is_named_by_others(self, group_id: str) -> bool:
        return any(
            rule.peer == group_id
            for group in self._region.groups.values()
            if group.id != group_id
            for rule in (*group.into, *group.out_of)
        )

    def _add(self, rules: list[Rule], asked: Json) -> Json:
        new = list(_rules(asked))
        for rule in new:
            if rule.by_group:
                self._group(rule.peer)
            if rule in rules:
                raise Refused(
                    "InvalidPermission.Duplicate",
                    f'the specified rule "peer: {rule.peer}" already exists',
                )
        rules += new
        return {"Return": True}

    def _take(self, rules: list[Rule], asked: Json) -> Json:
        going = list(_rules(asked))
        if any(rule not in rules for rule in going):
            raise Refused(
                "InvalidPermission.NotFound",
                "The specified rule does not exist in this security group.",
            )
        rules[:] = [rule for rule in rules if rule not in going]
        return {"Return": True}


def _rules(asked: Json) -> Iterator[Rule]:
    permissions = asked.get("IpPermissions")
    if permissions is None:
        permissions = [{**asked, "IpRanges": [{"CidrIp": asked["CidrIp"]}]}]
    for each in permissions:
        ports = (each["IpProtocol"], each.get("FromPort"), each.get("ToPort"))
        for entry in each.get("IpRanges", []):
            yield Rule(*ports, entry["CidrIp"], entry.get("Description", ""))
        for entry in each.get("UserIdGroupPairs", []):
            yield Rule(*ports, entry["GroupId"])
