"""The least that AWS has to allow: the person who runs gpurun, or whoever only ends what is over.

Pure: account and regions in, IAM documents out. What can carry our tag is allowed only with it;
what has only a name, only under ours. Each Sid says why the statement is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from orchestrator.aws.launch_rights import launching, networks, roles, spot
from orchestrator.aws.scope import Scope, Statement, allow, parameters, queues, schedules, tagged

Document = dict[str, Any]

MOST_CHARACTERS = 6_144
"""Of one managed policy, blanks not counted (IAM User Guide, "IAM and AWS STS quotas")."""

_LOOK = (
    *("AvailabilityZones", "Images", "InstanceAttribute", "InstanceTypeOfferings"),
    *("InstanceTypes", "Instances", "InternetGateways", "KeyPairs", "NatGateways"),
    "NetworkInterfaces",
    *("Regions", "RouteTables", "SecurityGroups", "Subnets", "Tags", "Volumes"),
    *("VpcEndpoints", "Vpcs"),
)


def runner_policy(scope: Scope) -> list[Document]:
    """What the person who runs gpurun needs; more than one document if one would be too long."""
    parts = (_looking, _ending, launching, networks, roles, spot, _results, _secrets)
    return _packed(statement for part in parts for statement in part(scope))


def reaper_policy(scope: Scope) -> list[Document]:
    """What it takes to find and end all that is past its expiry, and nothing else."""
    return _packed([*_looking(scope), *_ending(scope)])


def size_of(document: Document) -> int:
    """As IAM counts it."""
    return len(json.dumps(document, separators=(",", ":")))


def _looking(scope: Scope) -> Iterator[Statement]:
    yield allow(
        "LookingHasNoNarrowerResource",
        [
            *(f"ec2:Describe{what}" for what in _LOOK),
            *("iam:ListInstanceProfiles", "iam:ListRoles", "s3:ListAllMyBuckets"),
            *("scheduler:ListSchedules", "sqs:ListQueues", "ssm:DescribeParameters"),
        ],
        "*",
    )
    yield allow(
        "LookAtOwnRoles",
        [
            *("iam:GetInstanceProfile", "iam:GetRole", "iam:ListAttachedRolePolicies"),
            *("iam:ListInstanceProfilesForRole", "iam:ListRolePolicies"),
        ],
        scope.own_roles,
    )
    yield allow(
        "LookAtOwnSchedulesQueuesSecrets",
        [
            *("scheduler:GetSchedule", "sqs:GetQueueAttributes", "sqs:GetQueueUrl"),
            *("sqs:ListQueueTags", "sqs:ReceiveMessage", "ssm:ListTagsForResource"),
        ],
        [schedules(scope), queues(scope), parameters(scope)],
    )


def _ending(scope: Scope) -> Iterator[Statement]:
    """Only what carries a run's tag, or where there are no tags, our name."""
    yield allow(
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
        tagged(),
    )
    yield allow(
        "EndOwnRoles",
        [
            *("iam:DeleteInstanceProfile", "iam:DeleteRole", "iam:DeleteRolePolicy"),
            "iam:RemoveRoleFromInstanceProfile",
        ],
        scope.own_roles,
    )
    yield allow(
        "EndOwnSchedulesQueuesSecrets",
        ["scheduler:DeleteSchedule", "sqs:DeleteQueue", "ssm:DeleteParameter"],
        [schedules(scope), queues(scope), parameters(scope)],
    )


def _results(scope: Scope) -> Iterator[Statement]:
    yield allow(
        "KeepTheResultsBucketPrivate",
        [
            *("s3:CreateBucket", "s3:GetBucketPublicAccessBlock", "s3:ListBucket"),
            *("s3:ListBucketVersions", "s3:PutBucketOwnershipControls", "s3:PutBucketPolicy"),
            *("s3:PutBucketPublicAccessBlock", "s3:PutBucketTagging", "s3:PutBucketVersioning"),
            *("s3:PutEncryptionConfiguration", "s3:PutLifecycleConfiguration"),
        ],
        scope.bucket,
    )
    yield allow(
        "ReadAndWriteResultsButDeleteNone",
        ["s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"],
        f"{scope.bucket}/*",
    )


def _secrets(scope: Scope) -> Iterator[Statement]:
    yield allow(
        "LendThisMachinesSecretsToARun",
        ["ssm:AddTagsToResource", "ssm:PutParameter"],
        parameters(scope),
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
            yield allow(f"CheckTheRunbooksSecretsIn{service.capitalize()}", [action], arns)


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
