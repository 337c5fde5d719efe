"""Whom a policy is for, and the words of its statements: what is ours, by tag or by name. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.aws.tags import PREFIX, RUN

Statement = dict[str, Any]
ANY_RUN = "*"


@dataclass(frozen=True)
class Scope:
    """For which account, and how far."""

    account: str
    regions: tuple[str, ...]
    """Where boxes may be launched."""
    instance_types: tuple[str, ...]
    """As EC2 names them; `g6.*` is a pattern."""
    secrets: tuple[str, ...] = ()
    """Secrets of a runbook, as `ssm:/path` or `secretsmanager:name`."""
    image: str = "/aws/service/*"
    """Name of the SSM parameter that names the boxes' image."""
    partition: str = "aws"

    def arn(self, service: str, rest: str, *, region: str = "*") -> str:
        return f"arn:{self.partition}:{service}:{region}:{self.account}:{rest}"

    def ec2(self, *kinds: str) -> list[str]:
        return [self.arn("ec2", f"{kind}/*") for kind in kinds]

    @property
    def bucket(self) -> str:
        return f"arn:{self.partition}:s3:::{PREFIX}-{self.account}-*"

    @property
    def roles(self) -> str:
        return self.arn("iam", f"role/{PREFIX}/{PREFIX}-*", region="")

    @property
    def own_roles(self) -> list[str]:
        """Roles and profiles. Of one that isn't there IAM knows no path, and asks for its name;
        the reaper's own lie under another path, and end otherwise.
        """
        path, box, kill = f"{PREFIX}/{PREFIX}-*", f"{PREFIX}-*-box", f"{PREFIX}-*-kill"
        names = [f"role/{name}" for name in (path, box, kill)]
        names += [f"instance-profile/{name}" for name in (path, box)]
        return [self.arn("iam", name, region="") for name in names]


def is_public(scope: Scope) -> bool:
    """Public parameters belong to nobody's account."""
    return scope.image.startswith("/aws/service/")


def schedules(scope: Scope) -> str:
    return scope.arn("scheduler", f"schedule/default/{PREFIX}-*")


def queues(scope: Scope) -> str:
    return scope.arn("sqs", f"{PREFIX}-*")


def parameters(scope: Scope) -> str:
    return scope.arn("ssm", f"parameter/{PREFIX}/*")


def tagged() -> Statement:
    return {"StringLike": {f"aws:ResourceTag/{RUN}": ANY_RUN}}


def asked_tagged() -> Statement:
    return {"StringLike": {f"aws:RequestTag/{RUN}": ANY_RUN}}


def allow(
    sid: str,
    actions: list[str],
    resource: str | list[str],
    condition: Statement | None = None,
) -> Statement:
    made: Statement = {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resource}
    return made | ({"Condition": condition} if condition else {})
