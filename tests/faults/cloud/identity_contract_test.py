"""What IAM, the scheduler and SQS say: orders of deletion, late roles, what could never fire."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.faults.cloud.kit import RUN, TestAccount, refusal, trust

BOX, KILL = f"gpurun-{RUN}-box", f"gpurun-{RUN}-kill"
POLICY = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}],
    }
)


def role(account: TestAccount, name: str = KILL, service: str = "scheduler") -> str:
    made = account.iam.create_role(
        RoleName=name,
        Path="/gpurun/",
        AssumeRolePolicyDocument=trust(service),
        Tags=[{"Key": "gpurun:run", "Value": RUN}],
    )
    return str(made["Role"]["Arn"])


def test_a_role_is_seen_with_its_tags_and_listed_by_path(account: TestAccount) -> None:
    arn, iam = role(account), account.iam
    assert arn == f"arn:aws:iam::{account.session.account}:role/gpurun/{KILL}"
    seen = iam.get_role(RoleName=KILL)["Role"]
    assert seen["Tags"] == [{"Key": "gpurun:run", "Value": RUN}]
    pages = iam.get_paginator("list_roles").paginate(PathPrefix="/gpurun/")
    assert [each["RoleName"] for page in pages for each in page["Roles"]] == [KILL]


def test_nothing_is_made_twice_in_iam(account: TestAccount) -> None:
    role(account)
    again = {"RoleName": KILL, "AssumeRolePolicyDocument": trust("ec2")}
    assert refusal(account.iam.create_role, **again) == "EntityAlreadyExists"
    account.iam.create_instance_profile(InstanceProfileName=BOX, Path="/gpurun/")
    profile = {"InstanceProfileName": BOX}
    assert refusal(account.iam.create_instance_profile, **profile) == "EntityAlreadyExists"
    account.iam.delete_instance_profile(**profile)


@pytest.mark.parametrize(
    "operation,asked",
    [
        ("get_role", {"RoleName": BOX}),
        ("delete_role", {"RoleName": BOX}),
        ("get_instance_profile", {"InstanceProfileName": BOX}),
        ("delete_instance_profile", {"InstanceProfileName": BOX}),
        ("delete_role_policy", {"RoleName": BOX, "PolicyName": "p"}),
        (
            "put_role_policy",
            {"RoleName": BOX, "PolicyName": "p", "PolicyDocument": POLICY},
        ),
        (
            "remove_role_from_instance_profile",
            {"InstanceProfileName": BOX, "RoleName": BOX},
        ),
    ],
)
def test_what_iam_does_not_have_is_no_such_entity(
    account: TestAccount, operation: str, asked: dict[str, str]
) -> None:
    assert refusal(getattr(account.iam, operation), **asked) == "NoSuchEntity"


def test_a_role_goes_when_nothing_holds_it(account: TestAccount) -> None:
    iam = account.iam
    role(account, BOX, "ec2")
    iam.put_role_policy(RoleName=BOX, PolicyName="p", PolicyDocument=POLICY)
    iam.create_instance_profile(InstanceProfileName=BOX, Path="/gpurun/")
    iam.add_role_to_instance_profile(InstanceProfileName=BOX, RoleName=BOX)
    (seen,) = iam.get_instance_profile(InstanceProfileName=BOX)["InstanceProfile"]["Roles"]
    assert seen["RoleName"] == BOX
    full = {"InstanceProfileName": BOX, "RoleName": BOX}
    assert refusal(iam.add_role_to_instance_profile, **full) == "LimitExceeded"
    assert refusal(iam.delete_role, RoleName=BOX) == "DeleteConflict"
    assert refusal(iam.delete_instance_profile, InstanceProfileName=BOX) == "DeleteConflict"
    assert iam.list_role_policies(RoleName=BOX)["PolicyNames"] == ["p"]
    (holder,) = iam.list_instance_profiles_for_role(RoleName=BOX)["InstanceProfiles"]
    assert holder["InstanceProfileName"] == BOX
    iam.remove_role_from_instance_profile(**full)
    assert refusal(iam.delete_role, RoleName=BOX) == "DeleteConflict"
    iam.delete_role_policy(RoleName=BOX, PolicyName="p")
    iam.delete_role(RoleName=BOX)
    iam.delete_instance_profile(InstanceProfileName=BOX)


def test_a_policy_must_be_a_document(account: TestAccount) -> None:
    role(account)
    wrong = {"RoleName": KILL, "PolicyName": "p", "PolicyDocument": "{"}
    assert refusal(account.iam.put_role_policy, **wrong) == "MalformedPolicyDocument"


def at(when: datetime) -> str:
    return f"at({when:%Y-%m-%dT%H:%M:%S})"


def schedule(account: TestAccount, name: str = f"gpurun-{RUN}-l4", **more: Any) -> str:
    arn = f"arn:aws:iam::{account.session.account}:role/gpurun/{KILL}"
    target = {
        "Arn": more.pop("Arn", "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances"),
        "RoleArn": more.pop("RoleArn", arn),
        "Input": more.pop("Input", '{"InstanceIds": ["i-0123456789abcdef0"]}'),
    }
    asked = {
        "Name": name,
        "GroupName": "default",
        "ScheduleExpression": at(account.now() + timedelta(hours=2)),
        "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
        "State": "ENABLED",
        "Target": target,
    }
    return str(account.scheduler.create_schedule(**(asked | more))["ScheduleArn"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"ScheduleExpression": "at(tomorrow)"},
        {"ScheduleExpression": "at(2020-12-01T05:59:59)"},
        {"ScheduleExpression": "at(2050-12-01T07:10:00Z)"},
        {"ScheduleExpressionTimezone": "Mars/Olympus"},
        {"Arn": "arn:aws:scheduler:::aws-sdk:ec2:terminateInstance"},
        {"Arn": "arn:aws:scheduler:::aws-sdk:ec2:TerminateInstances"},
        {"Arn": "arn:aws:scheduler:::aws-sdk:ec3:terminateInstances"},
        {"Arn": "arn:aws:scheduler:::aws-sdk:ec2:describeInstances"},
        {"Arn": "terminate"},
        {"RoleArn": "arn:aws:iam::123456789012:role/nobody"},
        {"Input": "{"},
        {"name": "k" * 65},
    ],
)
def test_a_schedule_that_could_never_fire_is_refused(
    account: TestAccount, wrong: dict[str, str]
) -> None:
    role(account)
    account.turn()
    assert refusal(schedule, account=account, **wrong) == "ValidationException"
    assert account.scheduler.list_schedules()["Schedules"] == []


def test_a_schedule_needs_a_role_that_lets_the_scheduler_in(account: TestAccount) -> None:
    role(account, service="ec2")
    assert refusal(schedule, account=account) == "ValidationException"


def test_a_new_role_is_not_assumed_for_a_while(account: TestAccount) -> None:
    account.turn(role_delay_s=8)
    role(account)
    assert refusal(schedule, account=account) == "ValidationException"
    account.pass_time(8)
    schedule(account)


def test_a_schedule_is_one_by_its_name(account: TestAccount) -> None:
    account.turn()
    role(account)
    first = schedule(account, ClientToken="one")
    assert schedule(account, ClientToken="one") == first
    assert refusal(schedule, account=account, ClientToken="two") == "ConflictException"
    assert refusal(schedule, account=account) == "ConflictException"


def test_a_schedule_is_read_changed_and_deleted(account: TestAccount) -> None:
    account.turn()
    role(account)
    scheduler, name = account.scheduler, f"gpurun-{RUN}-l4"
    key = {"Name": name, "GroupName": "default"}
    for operation in ("get_schedule", "delete_schedule"):
        assert refusal(getattr(scheduler, operation), **key) == "ResourceNotFoundException"
    schedule(account)
    seen = scheduler.get_schedule(**key)
    assert seen["ScheduleExpression"] == at(account.now() + timedelta(hours=2))
    assert (seen["State"], seen["ActionAfterCompletion"]) == ("ENABLED", "DELETE")
    later = at(account.now() + timedelta(hours=3))
    kept = ("Target", "FlexibleTimeWindow", "ScheduleExpressionTimezone", "State")
    changed = {field: seen[field] for field in kept}
    scheduler.update_schedule(**key, **changed, ScheduleExpression=later)
    assert scheduler.get_schedule(**key)["ScheduleExpression"] == later
    scheduler.delete_schedule(**key)
    assert refusal(scheduler.delete_schedule, **key) == "ResourceNotFoundException"


def test_schedules_are_listed_by_the_beginning_of_their_names(account: TestAccount) -> None:
    account.turn()
    role(account)
    for box in ("l4", "l40s"):
        schedule(account, f"gpurun-{RUN}-{box}")
    pages = account.scheduler.get_paginator("list_schedules").paginate(
        GroupName="default", NamePrefix=f"gpurun-{RUN}-l40"
    )
    names = [each["Name"] for page in pages for each in page["Schedules"]]
    assert names == [f"gpurun-{RUN}-l40s"]


def test_a_queue_is_found_read_and_gone(account: TestAccount) -> None:
    sqs, name = account.sqs, f"gpurun-{RUN}-dead"
    missing = refusal(sqs.get_queue_url, QueueName=name)
    assert missing.endswith(("NonExistentQueue", "QueueDoesNotExist"))
    wanted = {"MessageRetentionPeriod": "1209600"}
    made = sqs.create_queue(QueueName=name, Attributes=wanted, tags={"gpurun:run": RUN})
    url = made["QueueUrl"]
    assert sqs.create_queue(QueueName=name, Attributes=wanted)["QueueUrl"] == url
    assert sqs.get_queue_url(QueueName=name)["QueueUrl"].rpartition("/")[2] == name
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"gpurun:run": RUN}
    assert sqs.list_queues(QueueNamePrefix="gpurun-")["QueueUrls"] == [url]
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix="nobody-")
    why = {"ERROR_CODE": {"DataType": "String", "StringValue": "Denied"}}
    sqs.send_message(QueueUrl=url, MessageBody="{}", MessageAttributes=why)
    count = sqs.get_queue_attributes(
        QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages", "QueueArn"]
    )["Attributes"]
    assert count["ApproximateNumberOfMessages"] == "1"
    assert count["QueueArn"].endswith(f":{name}")
    for _ in range(2):
        (message,) = sqs.receive_message(
            QueueUrl=url, VisibilityTimeout=0, MessageAttributeNames=["All"]
        )["Messages"]
        assert message["MessageAttributes"]["ERROR_CODE"]["StringValue"] == "Denied"
    sqs.delete_queue(QueueUrl=url)


def test_a_queue_that_is_gone_keeps_its_name_for_a_minute(account: TestAccount) -> None:
    account.turn(queue_linger_s=20)
    sqs, name = account.sqs, f"gpurun-{RUN}-dead"
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    sqs.delete_queue(QueueUrl=url)
    assert sqs.list_queues(QueueNamePrefix="gpurun-")["QueueUrls"] == [url]
    assert refusal(sqs.create_queue, QueueName=name).endswith("QueueDeletedRecently")
    account.pass_time(20)
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix="gpurun-")
    account.pass_time(40)
    sqs.create_queue(QueueName=name)


def test_the_caller_is_somebody(account: TestAccount) -> None:
    identity = account.sts.get_caller_identity()
    assert identity["Account"] == account.session.account
    assert identity["Arn"].split(":")[:2] == ["arn", "aws"]
