"""The least that AWS has to allow: the person who runs gpurun, or whoever only ends what is over.

Pure: account and regions in, IAM documents out. What can carry our tag is allowed only with it;
what has only a name, only under ours. Each Sid says why the statement is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.aws.tags import PREFIX, RUN

Statement = dict[str, Any]
Document = dict[str, Any]

MOST_CHARACTERS = 6_144
"""Of one managed policy, blanks not counted (IAM User Guide, "IAM and AWS STS quotas")."""

_ANY_RUN = "*"
_SPOT = "spot.amazonaws.com"
_LOOK = (
    *("AvailabilityZones", "Images", "InstanceAttribute", "InstanceTypeOfferings"),
    *("InstanceTypes", "Instances", "InternetGateways", "KeyPairs", "NatGateways"),
    "NetworkInterfaces",
    *("Regions", "RouteTables", "SecurityGroups", "Subnets", "Tags", "Volumes"),
    *("VpcEndpoints", "Vpcs"),
)
_MADE_WITH_TAGS = (
    *("CreateInternetGateway", "CreateSecurityGroup", "CreateSubnet", "CreateVpc"),
    *("CreateVpcEndpoint", "ImportKeyPair", "RunInstances"),
)


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


def runner_policy(scope: Scope) -> list[Document]:
    """What the person who runs gpurun needs; more than one document if one would be too long."""
    parts = (_looking, _ending, _launching, _networks, _roles, _spot, _results, _secrets)
    return _packed(statement for part in parts for statement in part(scope))


def reaper_policy(scope: Scope) -> list[Document]:
    """What it takes to find and end all that is past its expiry, and nothing else."""
    return _packed([*_looking(scope), *_ending(scope)])


def size_of(document: Document) -> int:
    """As IAM counts it."""
    return len(json.dumps(document, separators=(",", ":")))


def _looking(scope: Scope) -> Iterator[Statement]:
    yield _allow(
        "LookingHasNoNarrowerResource",
        [
            *(f"ec2:Describe{what}" for what in _LOOK),
            *("iam:ListInstanceProfiles", "iam:ListRoles", "s3:ListAllMyBuckets"),
            *("scheduler:ListSchedules", "sqs:ListQueues", "ssm:DescribeParameters"),
        ],
        "*",
    )
    yield _allow(
        "LookAtOwnRoles",
        [
            *("iam:GetInstanceProfile", "iam:GetRole", "iam:ListAttachedRolePolicies"),
            *("iam:ListInstanceProfilesForRole", "iam:ListRolePolicies"),
        ],
        scope.own_roles,
    )
    yield _allow(
        "LookAtOwnSchedulesQueuesSecrets",
        [
            *("scheduler:GetSchedule", "sqs:GetQueueAttributes", "sqs:GetQueueUrl"),
            *("sqs:ListQueueTags", "sqs:ReceiveMessage", "ssm:ListTagsForResource"),
        ],
        [_schedules(scope), _queues(scope), _parameters(scope)],
    )


def _ending(scope: Scope) -> Iterator[Statement]:
    """Only what carries a run's tag, or where there are no tags, our name."""
    yield _allow(
        "EndOnlyWhatCarriesARunsTag",
        [
            *("ec2:DeleteInternetGateway", "ec2:DeleteKeyPair", "ec2:DeleteNetworkInterface"),
            *("ec2:DeleteRouteTable", "ec2:DeleteSecurityGroup", "ec2:DeleteSubnet"),
            *("ec2:DeleteVolume", "ec2:DeleteVpc", "ec2:DeleteVpcEndpoints"),
            *("ec2:DetachInternetGateway", "ec2:ModifyInstanceAttribute"),
            *("ec2:RevokeSecurityGroupEgress", "ec2:RevokeSecurityGroupIngress"),
            "ec2:TerminateInstances",
        ],
        scope.arn("ec2", "*/*"),
        _tagged(),
    )
    yield _allow(
        "EndOwnRoles",
        [
            *("iam:DeleteInstanceProfile", "iam:DeleteRole", "iam:DeleteRolePolicy"),
            "iam:RemoveRoleFromInstanceProfile",
        ],
        scope.own_roles,
    )
    yield _allow(
        "EndOwnSchedulesQueuesSecrets",
        ["scheduler:DeleteSchedule", "sqs:DeleteQueue", "ssm:DeleteParameter"],
        [_schedules(scope), _queues(scope), _parameters(scope)],
    )


def _launching(scope: Scope) -> Iterator[Statement]:
    here = {"aws:RequestedRegion": list(scope.regions)}
    yield _allow(
        "LaunchOnlyTheseTypesHereAndTagged",
        ["ec2:RunInstances"],
        scope.ec2("instance"),
        {
            "StringLike": {
                f"aws:RequestTag/{RUN}": _ANY_RUN,
                "ec2:InstanceType": list(scope.instance_types),
            },
            "StringEquals": here,
        },
    )
    yield _allow(
        "DisksAndInterfacesOfALaunchAreTagged",
        ["ec2:RunInstances"],
        scope.ec2("network-interface", "volume"),
        _asked_tagged(),
    )
    yield _allow(
        "LaunchOnlyIntoOwnNetworks",
        ["ec2:RunInstances"],
        scope.ec2("key-pair", "security-group", "subnet"),
        _tagged(),
    )
    yield _allow(
        "LaunchFromAnyImage",
        ["ec2:RunInstances"],
        [f"arn:{scope.partition}:ec2:*::{kind}/*" for kind in ("image", "snapshot")],
    )
    # No launch of ours tags it: what it launches is held to its types and tags above.
    yield _allow("AskForSpotInstances", ["ec2:RunInstances"], scope.ec2("spot-instances-request"))
    yield _allow(
        "ReadTheImagesName",
        ["ssm:GetParameter"],
        f"arn:{scope.partition}:ssm:*:{'' if _is_public(scope) else scope.account}"
        f":parameter{scope.image}",
    )
    yield _allow(
        "CompareWithTheQuota",
        ["servicequotas:GetServiceQuota"],  # AWS lists no resource that it could be kept to
        "*",
    )
    yield _allow(
        "ArmTheCloudsOwnSwitch",
        ["scheduler:CreateSchedule", "scheduler:UpdateSchedule"],
        _schedules(scope),
    )
    yield _allow("KeepItsDeadLetters", ["sqs:CreateQueue", "sqs:TagQueue"], _queues(scope))


def _networks(scope: Scope) -> Iterator[Statement]:
    yield _allow(
        "MakeOnlyTaggedThings",
        [f"ec2:{action}" for action in _MADE_WITH_TAGS if action != "RunInstances"],
        scope.ec2(
            *("internet-gateway", "key-pair", "security-group", "subnet", "vpc", "vpc-endpoint"),
        ),
        _asked_tagged(),
    )
    yield _allow(
        "MakeThemOnlyInOwnNetworks",
        ["ec2:CreateSecurityGroup", "ec2:CreateSubnet", "ec2:CreateVpcEndpoint"],
        scope.ec2("route-table", "vpc"),
        _tagged(),
    )
    yield _allow(
        "ChangeOnlyOwnNetworks",
        [
            *("ec2:AttachInternetGateway", "ec2:AuthorizeSecurityGroupIngress"),
            *("ec2:CreateRoute", "ec2:ModifyVpcAttribute", "ec2:ReplaceRoute"),
        ],
        scope.ec2("internet-gateway", "route-table", "security-group", "vpc"),
        _tagged(),
    )
    yield _allow(
        "TagOnlyWhatIsBeingMade",
        ["ec2:CreateTags"],
        scope.arn("ec2", "*/*"),
        {"StringEquals": {"ec2:CreateAction": list(_MADE_WITH_TAGS)}},
    )
    # A VPC's main table comes with it, and nothing tags it in that call.
    yield _allow(
        "TagTheMainRouteTable", ["ec2:CreateTags"], scope.ec2("route-table"), _asked_tagged()
    )


def _roles(scope: Scope) -> Iterator[Statement]:
    yield _allow(
        "MakeOwnRoles",
        [
            *("iam:AddRoleToInstanceProfile", "iam:CreateInstanceProfile", "iam:CreateRole"),
            *("iam:PutRolePolicy", "iam:TagInstanceProfile", "iam:TagRole"),
            "iam:UpdateAssumeRolePolicy",
        ],
        scope.own_roles,
    )
    services = ["ec2.amazonaws.com", "scheduler.amazonaws.com"]
    yield _allow(
        "HandOwnRolesToBoxesAndSchedules",
        ["iam:PassRole"],
        scope.roles,
        {"StringEquals": {"iam:PassedToService": services}},
    )


def _spot(scope: Scope) -> Iterator[Statement]:
    """EC2 makes this role for itself when an account's first spot instance is launched."""
    role = f"role/aws-service-role/{_SPOT}/AWSServiceRoleForEC2Spot"
    yield _allow(
        "TheFirstSpotInstanceOfAnAccount",
        ["iam:CreateServiceLinkedRole"],
        scope.arn("iam", role, region=""),
        {"StringEquals": {"iam:AWSServiceName": _SPOT}},
    )


def _results(scope: Scope) -> Iterator[Statement]:
    yield _allow(
        "KeepTheResultsBucketPrivate",
        [
            *("s3:CreateBucket", "s3:GetBucketPublicAccessBlock", "s3:ListBucket"),
            *("s3:ListBucketVersions", "s3:PutBucketOwnershipControls", "s3:PutBucketPolicy"),
            *("s3:PutBucketPublicAccessBlock", "s3:PutBucketTagging", "s3:PutBucketVersioning"),
            *("s3:PutEncryptionConfiguration", "s3:PutLifecycleConfiguration"),
        ],
        scope.bucket,
    )
    yield _allow(
        "ReadAndWriteResultsButDeleteNone",
        ["s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"],
        f"{scope.bucket}/*",
    )


def _secrets(scope: Scope) -> Iterator[Statement]:
    yield _allow(
        "LendThisMachinesSecretsToARun",
        ["ssm:AddTagsToResource", "ssm:PutParameter"],
        _parameters(scope),
    )
    named = {
        "ssm:GetParameter": ("ssm:", "parameter{}"),
        "secretsmanager:DescribeSecret": ("secretsmanager:", "secret:{}-??????"),
    }
    for action, (begins, form) in named.items():
        keys = [at.removeprefix(begins) for at in scope.secrets if at.startswith(begins)]
        if keys:
            service = begins.rstrip(":")
            arns = [scope.arn(service, form.format(key)) for key in keys]
            yield _allow(f"CheckTheRunbooksSecretsIn{service.capitalize()}", [action], arns)


def _is_public(scope: Scope) -> bool:
    """Public parameters belong to nobody's account."""
    return scope.image.startswith("/aws/service/")


def _schedules(scope: Scope) -> str:
    return scope.arn("scheduler", f"schedule/default/{PREFIX}-*")


def _queues(scope: Scope) -> str:
    return scope.arn("sqs", f"{PREFIX}-*")


def _parameters(scope: Scope) -> str:
    return scope.arn("ssm", f"parameter/{PREFIX}/*")


def _tagged() -> Statement:
    return {"StringLike": {f"aws:ResourceTag/{RUN}": _ANY_RUN}}


def _asked_tagged() -> Statement:
    return {"StringLike": {f"aws:RequestTag/{RUN}": _ANY_RUN}}


def _allow(
    sid: str,
    actions: list[str],
    resource: str | list[str],
    condition: Statement | None = None,
) -> Statement:
    made: Statement = {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resource}
    return made | ({"Condition": condition} if condition else {})


def _packed(statements: Iterable[Statement]) -> list[Document]:
    """As few documents as IAM's limit allows, the statements in their order."""
    documents = [_document([])]
    for statement in statements:
        longer = _document([*documents[-1]["Statement"], statement])
        if size_of(longer) > MOST_CHARACTERS:
            documents.append(_document([statement]))
        else:
            documents[-1] = longer
    return documents


def _document(statements: list[Statement]) -> Document:
    return {"Version": "2012-10-17", "Statement": statements}
