"""What a box may do, and who may end it: the policies that we send, fact by fact."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.aws.role import delete_roles, ensure_box_role, ensure_kill_role
from orchestrator.aws.role_policies import PATH, box_trust, kill_trust
from orchestrator.aws.session import Session
from orchestrator.aws.tags import RunTags
from orchestrator.errors import QuotaError

from .account import RUN, answer

BOX = f"gpurun-{RUN}-box"
KILL = f"gpurun-{RUN}-kill"


def policy_of(session: Session, role: str) -> list[dict[str, Any]]:
    answer = session.client("iam").get_role_policy(RoleName=role, PolicyName="gpurun")
    document: Any = answer["PolicyDocument"]
    statements: list[dict[str, Any]] = document["Statement"]
    return statements


def trust_of(session: Session, role: str) -> list[dict[str, Any]]:
    document: Any = session.client("iam").get_role(RoleName=role)["Role"][
        "AssumeRolePolicyDocument"
    ]
    statements: list[dict[str, Any]] = document["Statement"]
    return statements


def test_a_box_reads_and_writes_its_runs_prefix_only(session: Session, tags: RunTags) -> None:
    assert ensure_box_role(session, tags, tags.bucket) == BOX
    allowed = [s for s in policy_of(session, BOX) if s["Effect"] == "Allow"]
    bucket = "arn:aws:s3:::gpurun-123456789012-us-east-1"
    assert allowed == [
        {
            "Sid": "OwnPrefix",
            "Effect": "Allow",
            "Action": [
                "s3:PutObject",
                "s3:GetObject",
                "s3:AbortMultipartUpload",
            ],
            "Resource": f"{bucket}/runs/{RUN}/*",
        },
        {
            "Sid": "ListOwnPrefix",
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": bucket,
            "Condition": {"StringLike": {"s3:prefix": f"runs/{RUN}/*"}},
        },
        {
            "Sid": "FindCutUploads",
            "Effect": "Allow",
            "Action": "s3:ListBucketMultipartUploads",
            "Resource": bucket,
        },
    ]


def test_a_box_deletes_nothing(session: Session, tags: RunTags) -> None:
    ensure_box_role(session, tags, tags.bucket)
    (denied,) = [s for s in policy_of(session, BOX) if s["Effect"] == "Deny"]
    assert "s3:Delete*" in denied["Action"]
    assert denied["Resource"] == "*"
    assert "Condition" not in denied


def test_only_ec2_takes_the_box_role(session: Session, tags: RunTags) -> None:
    ensure_box_role(session, tags, tags.bucket)
    (trust,) = trust_of(session, BOX)
    assert trust["Principal"] == {"Service": "ec2.amazonaws.com"}


def test_the_kill_role_ends_this_runs_instances_only(session: Session, tags: RunTags) -> None:
    arn = ensure_kill_role(session, tags)
    assert session.client("iam").get_role(RoleName=KILL)["Role"]["Arn"] == arn
    assert policy_of(session, KILL) == [
        {
            "Effect": "Allow",
            "Action": "ec2:TerminateInstances",
            "Resource": "arn:aws:ec2:us-east-1:123456789012:instance/*",
            "Condition": {"StringEquals": {"aws:ResourceTag/gpurun:run": RUN}},
        },
        {
            "Effect": "Allow",
            "Action": "sqs:SendMessage",
            "Resource": f"arn:aws:sqs:us-east-1:123456789012:gpurun-{RUN}-dead",
        },
        {
            "Effect": "Allow",
            "Action": "ssm:StartAutomationExecution",
            "Resource": [
                "arn:aws:ssm:us-east-1::automation-definition/AWS-TerminateEC2Instance:*",
                "arn:aws:ssm:us-east-1::document/AWS-TerminateEC2Instance",
                "arn:aws:ssm:us-east-1:123456789012:automation-execution/*",
            ],
        },
        {
            "Effect": "Allow",
            "Action": "iam:PassRole",
            "Resource": arn,
            "Condition": {"StringEquals": {"iam:PassedToService": "ssm.amazonaws.com"}},
        },
        {
            "Effect": "Allow",
            "Action": ["ec2:DescribeInstances", "ec2:DescribeInstanceStatus", "tag:GetResources"],
            "Resource": "*",
        },
    ]


def test_only_this_accounts_schedules_and_automations_take_the_kill_role(
    session: Session, tags: RunTags
) -> None:
    ensure_kill_role(session, tags)
    scheduler, ssm = trust_of(session, KILL)
    own = {"aws:SourceAccount": "123456789012"}
    group = "arn:aws:scheduler:us-east-1:123456789012:schedule-group/default"
    assert scheduler["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert scheduler["Condition"] == {"StringEquals": {**own, "aws:SourceArn": group}}
    executions = "arn:aws:ssm:us-east-1:123456789012:automation-execution/*"
    assert ssm["Principal"] == {"Service": "ssm.amazonaws.com"}
    assert ssm["Condition"] == {
        "StringEquals": own,
        "StringLike": {"aws:SourceArn": executions},
    }


def test_a_second_call_changes_nothing(session: Session, tags: RunTags) -> None:
    for _ in range(2):
        ensure_box_role(session, tags, tags.bucket)
        ensure_kill_role(session, tags)
    iam = session.client("iam")
    assert len(iam.list_roles()["Roles"]) == 2
    (profile,) = iam.list_instance_profiles()["InstanceProfiles"]
    assert [role["RoleName"] for role in profile["Roles"]] == [BOX]


@pytest.mark.parametrize("before", [{}, box_trust()])
def test_a_role_of_before_gets_who_may_take_it_now(
    session: Session, tags: RunTags, before: dict[str, Any]
) -> None:
    for name in (BOX, KILL):
        session.client("iam").create_role(
            RoleName=name, Path=PATH, AssumeRolePolicyDocument=json.dumps(before)
        )
    ensure_box_role(session, tags, tags.bucket)
    ensure_kill_role(session, tags)
    assert trust_of(session, BOX) == box_trust()["Statement"]
    assert trust_of(session, KILL) == kill_trust(session)["Statement"]


def test_a_role_as_it_should_be_needs_no_leave_to_change_who_takes_it(
    session: Session, tags: RunTags
) -> None:
    ensure_kill_role(session, tags)
    no = {"Error": {"Code": "AccessDenied", "Message": "no"}}
    with answer(session, "UpdateAssumeRolePolicy", no, 403, service="iam"):
        ensure_kill_role(session, tags)


@pytest.mark.parametrize("part", ["role", "profile", "link"])
def test_a_half_made_role_is_completed(session: Session, tags: RunTags, part: str) -> None:
    iam = session.client("iam")
    if part == "role":
        iam.create_role(RoleName=BOX, AssumeRolePolicyDocument=json.dumps({}))
    else:
        ensure_box_role(session, tags, tags.bucket)
        iam.remove_role_from_instance_profile(InstanceProfileName=BOX, RoleName=BOX)
        if part == "profile":
            iam.delete_instance_profile(InstanceProfileName=BOX)
    ensure_box_role(session, tags, tags.bucket)
    profile = iam.get_instance_profile(InstanceProfileName=BOX)["InstanceProfile"]
    assert [role["RoleName"] for role in profile["Roles"]] == [BOX]
    assert policy_of(session, BOX)


def test_roles_are_deleted_and_deleting_again_is_fine(session: Session, tags: RunTags) -> None:
    ensure_box_role(session, tags, tags.bucket)
    ensure_kill_role(session, tags)
    for _ in range(2):
        delete_roles(session, RUN)
    assert session.client("iam").list_roles()["Roles"] == []
    assert session.client("iam").list_instance_profiles()["InstanceProfiles"] == []


@pytest.mark.parametrize("operation", ["CreateRole", "CreateInstanceProfile"])
def test_an_account_that_may_have_no_more_of_them_is_told_so_at_once(
    session: Session, tags: RunTags, operation: str
) -> None:
    no = {"Error": {"Code": "LimitExceeded", "Message": "Cannot exceed quota"}}
    with answer(session, operation, no, 409, service="iam"), pytest.raises(QuotaError) as told:
        ensure_box_role(session, tags, tags.bucket)
    assert operation in told.value.message
