"""IAM: roles and instance profiles, taken apart in no order but IAM's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from orchestrator.localcloud import policy
from tests.faults.cloud.refusal import Refused
from tests.faults.cloud.service import Service, tag_map
from tests.faults.cloud.things import Json, tag_list


@dataclass
class Role:
    """`trust` and the policies are documents."""

    name: str
    arn: str
    path: str
    made_at: datetime
    trust: Json
    tags: dict[str, str]
    policies: dict[str, Json] = field(default_factory=dict)
    attached: dict[str, Json] = field(default_factory=dict)
    _judged: list[Json] = field(default_factory=list)
    """The documents by which the verdicts were found."""
    _verdicts: dict[tuple[object, ...], bool] = field(default_factory=dict)

    @property
    def documents(self) -> list[Json]:
        return [*self.policies.values(), *self.attached.values()]

    def allows(self, action: str, resource: str, context: Mapping[str, str]) -> bool:
        """By its documents as they are now; a box asks the same again and again."""
        documents = self.documents
        if documents != self._judged:
            self._judged, self._verdicts = documents, {}
        asked = (action, resource, *context.items())
        if asked not in self._verdicts:
            self._verdicts[asked] = policy.allows(documents, action, resource, context)
        return self._verdicts[asked]

    def describe(self) -> Json:
        return {
            "RoleName": self.name,
            "Arn": self.arn,
            "Path": self.path,
            "CreateDate": self.made_at,
            "AssumeRolePolicyDocument": self.trust,
        }


@dataclass
class Profile:
    name: str
    arn: str
    path: str
    made_at: datetime
    tags: dict[str, str]
    roles: list[str] = field(default_factory=list)


class Iam(Service):
    def create_role(
        self,
        *,
        RoleName: str,
        AssumeRolePolicyDocument: str,
        Path: str = "/",
        Description: str = "",
        Tags: Iterable[Any] = (),
        MaxSessionDuration: int = 3600,
    ) -> Json:
        roles = self._account.roles
        if RoleName in roles:
            raise _exists("Role", RoleName)
        role = Role(
            name=RoleName,
            arn=f"arn:aws:iam::{self._account.id}:role{Path}{RoleName}",
            path=Path,
            made_at=self._account.timeline.time(),
            trust=_document(AssumeRolePolicyDocument),
            tags=tag_map(Tags),
        )
        roles[RoleName] = role
        return {"Role": role.describe() | {"Tags": tag_list(role.tags)}}

    def update_assume_role_policy(self, *, RoleName: str, PolicyDocument: str) -> Json:
        self._role(RoleName).trust = _document(PolicyDocument)
        return {}

    def get_role(self, *, RoleName: str) -> Json:
        role = self._role(RoleName)
        return {"Role": role.describe() | {"Tags": tag_list(role.tags)}}

    def list_roles(self, *, PathPrefix: str = "/") -> Json:
        found = [r for r in self._account.roles.values() if r.path.startswith(PathPrefix)]
        return {"Roles": [role.describe() for role in found], "IsTruncated": False}

    def delete_role(self, *, RoleName: str) -> Json:
        role = self._role(RoleName)
        if any(RoleName in profile.roles for profile in self._account.profiles.values()):
            raise _conflict("must remove roles from instance profile first.")
        if role.policies:
            raise _conflict("must delete policies first.")
        if role.attached:
            raise _conflict("must detach all policies first.")
        del self._account.roles[RoleName]
        return {}

    def put_role_policy(self, *, RoleName: str, PolicyName: str, PolicyDocument: str) -> Json:
        self._role(RoleName).policies[PolicyName] = _document(PolicyDocument)
        return {}

    def get_role_policy(self, *, RoleName: str, PolicyName: str) -> Json:
        document = self._role(RoleName).policies.get(PolicyName)
        if document is None:
            raise _no_entity(f"The role policy with name {PolicyName} cannot be found.")
        return {"RoleName": RoleName, "PolicyName": PolicyName, "PolicyDocument": document}

    def list_role_policies(self, *, RoleName: str) -> Json:
        return {"PolicyNames": list(self._role(RoleName).policies), "IsTruncated": False}

    def delete_role_policy(self, *, RoleName: str, PolicyName: str) -> Json:
        if self._role(RoleName).policies.pop(PolicyName, None) is None:
            raise _no_entity(f"The role policy with name {PolicyName} cannot be found.")
        return {}

    def list_attached_role_policies(self, *, RoleName: str) -> Json:
        attached = [{"PolicyArn": arn} for arn in self._role(RoleName).attached]
        return {"AttachedPolicies": attached, "IsTruncated": False}

    def attach_role_policy(self, *, RoleName: str, PolicyArn: str) -> Json:
        self._role(RoleName).attached[PolicyArn] = {"Statement": []}
        return {}

    def detach_role_policy(self, *, RoleName: str, PolicyArn: str) -> Json:
        if self._role(RoleName).attached.pop(PolicyArn, None) is None:
            raise _no_entity(f"Policy {PolicyArn} was not found.")
        return {}

    def list_instance_profiles_for_role(self, *, RoleName: str) -> Json:
        name = self._role(RoleName).name
        found = [p for p in self._account.profiles.values() if name in p.roles]
        return {"InstanceProfiles": [self._describe(p) for p in found], "IsTruncated": False}

    def create_instance_profile(
        self, *, InstanceProfileName: str, Path: str = "/", Tags: Iterable[Any] = ()
    ) -> Json:
        profiles = self._account.profiles
        if InstanceProfileName in profiles:
            raise _exists("Instance Profile", InstanceProfileName)
        profile = Profile(
            name=InstanceProfileName,
            arn=f"arn:aws:iam::{self._account.id}:instance-profile{Path}{InstanceProfileName}",
            path=Path,
            made_at=self._account.timeline.time(),
            tags=tag_map(Tags),
        )
        profiles[InstanceProfileName] = profile
        return {"InstanceProfile": self._describe(profile)}

    def get_instance_profile(self, *, InstanceProfileName: str) -> Json:
        return {"InstanceProfile": self._describe(self._profile(InstanceProfileName))}

    def list_instance_profiles(self, *, PathPrefix: str = "/") -> Json:
        found = [p for p in self._account.profiles.values() if p.path.startswith(PathPrefix)]
        return {"InstanceProfiles": [self._describe(p) for p in found], "IsTruncated": False}

    def add_role_to_instance_profile(self, *, InstanceProfileName: str, RoleName: str) -> Json:
        profile, role = self._profile(InstanceProfileName), self._role(RoleName)
        if profile.roles:
            raise Refused(
                "LimitExceeded",
                "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1",
                409,
            )
        profile.roles.append(role.name)
        return {}

    def remove_role_from_instance_profile(
        self, *, InstanceProfileName: str, RoleName: str
    ) -> Json:
        profile = self._profile(InstanceProfileName)
        if RoleName not in profile.roles:
            raise _no_entity(f"Role {RoleName} in Instance Profile cannot be found.")
        profile.roles.remove(RoleName)
        return {}

    def delete_instance_profile(self, *, InstanceProfileName: str) -> Json:
        if self._profile(InstanceProfileName).roles:
            raise _conflict("must remove roles from instance profile first.")
        del self._account.profiles[InstanceProfileName]
        return {}

    def _describe(self, profile: Profile) -> Json:
        roles = self._account.roles
        return {
            "InstanceProfileName": profile.name,
            "Arn": profile.arn,
            "Path": profile.path,
            "CreateDate": profile.made_at,
            "Roles": [roles[name].describe() for name in profile.roles],
            "Tags": tag_list(profile.tags),
        }

    def _role(self, name: str) -> Role:
        role = self._account.roles.get(name)
        if role is None:
            raise _no_entity(f"The role with name {name} cannot be found.")
        return role

    def _profile(self, name: str) -> Profile:
        profile = self._account.profiles.get(name)
        if profile is None:
            raise _no_entity(f"Instance Profile {name} cannot be found.")
        return profile


@lru_cache(maxsize=256)
def _parsed(text: str) -> Json:
    document: Json = json.loads(text)
    return document


def _document(text: str) -> Json:
    """Read once per text: lives repeat them. Nobody changes a document."""
    try:
        return _parsed(text)
    except ValueError:
        raise Refused("MalformedPolicyDocument", "Syntax errors in policy.") from None


def _no_entity(message: str) -> Refused:
    return Refused("NoSuchEntity", message, 404)


def _exists(what: str, name: str) -> Refused:
    return Refused("EntityAlreadyExists", f"{what} with name {name} already exists.", 409)


def _conflict(message: str) -> Refused:
    return Refused("DeleteConflict", f"Cannot delete entity, {message}", 409)
