"""What launching a run takes: boxes, networks, roles, and the cloud's own switches. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.aws.scope import (
    ANY_RUN,
    Scope,
    Statement,
    allow,
    asked_tagged,
    is_public,
    queues,
    schedules,
    tagged,
)
from orchestrator.aws.tags import RUN

if TYPE_CHECKING:
    from collections.abc import Iterator

_SPOT = "spot.amazonaws.com"
_MADE_WITH_TAGS = (
    *("CreateInternetGateway", "CreateSecurityGroup", "CreateSubnet", "CreateVpc"),
    *("CreateVpcEndpoint", "ImportKeyPair", "RunInstances"),
)


def launching(scope: Scope) -> Iterator[Statement]:
    here = {"aws:RequestedRegion": list(scope.regions)}
    yield allow(
        "LaunchOnlyTheseTypesHereAndTagged",
        ["ec2:RunInstances"],
        scope.ec2("instance"),
        {
            "StringLike": {
                f"aws:RequestTag/{RUN}": ANY_RUN,
                "ec2:InstanceType": list(scope.instance_types),
            },
            "StringEquals": here,
        },
    )
    yield allow(
        "DisksAndInterfacesOfALaunchAreTagged",
        ["ec2:RunInstances"],
        scope.ec2("network-interface", "volume"),
        asked_tagged(),
    )
    yield allow(
        "LaunchOnlyIntoOwnNetworks",
        ["ec2:RunInstances"],
        scope.ec2("key-pair", "security-group", "subnet"),
        tagged(),
    )
    yield allow(
        "LaunchFromAnyImage",
        ["ec2:RunInstances"],
        [f"arn:{scope.partition}:ec2:*::{kind}/*" for kind in ("image", "snapshot")],
    )
    # No launch of ours tags it: what it launches is held to its types and tags above.
    yield allow("AskForSpotInstances", ["ec2:RunInstances"], scope.ec2("spot-instances-request"))
    yield allow(
        "ReadTheImagesName",
        ["ssm:GetParameter"],
        f"arn:{scope.partition}:ssm:*:{'' if is_public(scope) else scope.account}"
        f":parameter{scope.image}",
    )
    yield allow(
        "CompareWithTheQuota",
        ["servicequotas:GetServiceQuota"],  # AWS lists no resource that it could be kept to
        "*",
    )
    yield allow(
        "ArmTheCloudsOwnSwitch",
        ["scheduler:CreateSchedule", "scheduler:UpdateSchedule"],
        schedules(scope),
    )
    yield allow("KeepItsDeadLetters", ["sqs:CreateQueue", "sqs:TagQueue"], queues(scope))


def networks(scope: Scope) -> Iterator[Statement]:
    yield allow(
        "MakeOnlyTaggedThings",
        [f"ec2:{action}" for action in _MADE_WITH_TAGS if action != "RunInstances"],
        scope.ec2(
            *("internet-gateway", "key-pair", "security-group", "subnet", "vpc", "vpc-endpoint"),
        ),
        asked_tagged(),
    )
    yield allow(
        "MakeThemOnlyInOwnNetworks",
        ["ec2:CreateSecurityGroup", "ec2:CreateSubnet", "ec2:CreateVpcEndpoint"],
        scope.ec2("route-table", "vpc"),
        tagged(),
    )
    yield allow(
        "ChangeOnlyOwnNetworks",
        [
            *("ec2:AttachInternetGateway", "ec2:AuthorizeSecurityGroupIngress"),
            *("ec2:CreateRoute", "ec2:ModifyVpcAttribute", "ec2:ReplaceRoute"),
        ],
        scope.ec2("internet-gateway", "route-table", "security-group", "vpc"),
        tagged(),
    )
    yield allow(
        "TagOnlyWhatIsBeingMade",
        ["ec2:CreateTags"],
        scope.arn("ec2", "*/*"),
        {"StringEquals": {"ec2:CreateAction": list(_MADE_WITH_TAGS)}},
    )
    # A VPC's main table comes with it, and nothing tags it in that call.
    yield allow(
        "TagTheMainRouteTable", ["ec2:CreateTags"], scope.ec2("route-table"), asked_tagged()
    )


def roles(scope: Scope) -> Iterator[Statement]:
    yield allow(
        "MakeOwnRoles",
        [
            *("iam:AddRoleToInstanceProfile", "iam:CreateInstanceProfile", "iam:CreateRole"),
            *("iam:PutRolePolicy", "iam:TagInstanceProfile", "iam:TagRole"),
            "iam:UpdateAssumeRolePolicy",
        ],
        scope.own_roles,
    )
    services = ["ec2.amazonaws.com", "scheduler.amazonaws.com"]
    yield allow(
        "HandOwnRolesToBoxesAndSchedules",
        ["iam:PassRole"],
        scope.roles,
        {"StringEquals": {"iam:PassedToService": services}},
    )


def spot(scope: Scope) -> Iterator[Statement]:
    """EC2 makes this role for itself when an account's first spot instance is launched."""
    role = f"role/aws-service-role/{_SPOT}/AWSServiceRoleForEC2Spot"
    yield allow(
        "TheFirstSpotInstanceOfAnAccount",
        ["iam:CreateServiceLinkedRole"],
        scope.arn("iam", role, region=""),
        {"StringEquals": {"iam:AWSServiceName": _SPOT}},
    )
