"""Schedules fire when they are due, only with a role that may, and fail into their queue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from threading import RLock
from typing import Any

import pytest

from orchestrator.localcloud.firing import Firing, clients_of
from orchestrator.localcloud.rules.images import IMAGES, image_id
from orchestrator.localcloud.strict import strict_aws

REGION = "us-east-1"
QUEUES = f"arn:aws:sqs:{REGION}:123456789012"
START = datetime(2026, 12, 1, 6, tzinfo=UTC)
DUE = datetime(2026, 12, 1, 7, tzinfo=UTC)
TRUST = {
    "Version": "2012-10-17",
    "Statement": {
        "Effect": "Allow",
        "Principal": {"Service": "scheduler.amazonaws.com"},
        "Action": "sts:AssumeRole",
    },
}


class Scheduled:
    """One instance, and schedules to end it."""

    def __init__(self, clients: Any) -> None:
        self.now = START
        self._clients = clients
        self.firing = Firing(clients, RLock(), lambda: self.now)
        image = image_id(next(iter(IMAGES)), REGION)
        tags = [{"Key": "gpurun:run", "Value": "r1"}]
        made = self.client("ec2").run_instances(
            ImageId=image,
            InstanceType="g6.xlarge",
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )
        self.box = made["Instances"][0]["InstanceId"]

    def client(self, service: str) -> Any:
        return self._clients(service, REGION)

    def role(self, *, run: str = "r1", tells: bool = True) -> str:
        iam = self.client("iam")
        trust = json.dumps(TRUST)
        arn = iam.create_role(RoleName="kill", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
        statement = {
            "Effect": "Allow",
            "Action": "ec2:TerminateInstances",
            "Resource": "arn:aws:ec2:*:123456789012:instance/*",
            "Condition": {"StringEquals": {"aws:ResourceTag/gpurun:run": run}},
        }
        tell = {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": f"{QUEUES}:dead"}
        allowed = [statement, tell] if tells else [statement]
        document = json.dumps({"Version": "2012-10-17", "Statement": allowed})
        iam.put_role_policy(RoleName="kill", PolicyName="p", PolicyDocument=document)
        return str(arn)

    def schedule(self, role: str, name: str = "kill", **target: Any) -> None:
        self.client("scheduler").create_schedule(
            Name=name,
            ScheduleExpression="at(2026-12-01T07:00:00)",
            FlexibleTimeWindow={"Mode": "OFF"},
            ActionAfterCompletion="DELETE",
            Target={
                "Arn": "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances",
                "RoleArn": role,
                "Input": json.dumps({"InstanceIds": [self.box]}),
                **target,
            },
        )

    def state(self) -> str:
        found = self.client("ec2").describe_instances(InstanceIds=[self.box])
        return str(found["Reservations"][0]["Instances"][0]["State"]["Name"])

    def left(self) -> list[str]:
        return [s["Name"] for s in self.client("scheduler").list_schedules()["Schedules"]]


@pytest.fixture
def scheduled() -> Iterator[Scheduled]:
    clock: list[Scheduled] = []
    with strict_aws(now=lambda: clock[0].now if clock else START):
        clock.append(Scheduled(clients_of(None)))
        yield clock[0]


def test_a_schedule_fires_at_its_time_and_not_before(scheduled: Scheduled) -> None:
    scheduled.schedule(scheduled.role())
    scheduled.now = DUE - timedelta(seconds=1)
    assert scheduled.firing.fire_due() == []
    assert scheduled.state() == "running"
    scheduled.now = DUE
    assert scheduled.firing.fire_due() == ["kill"]
    assert scheduled.state() == "terminated"
    assert scheduled.left() == []
    assert scheduled.firing.fire_due() == []


def test_firing_at_an_instance_that_is_gone_already_does_no_harm(scheduled: Scheduled) -> None:
    scheduled.schedule(scheduled.role())
    scheduled.client("ec2").terminate_instances(InstanceIds=[scheduled.box])
    scheduled.now = DUE
    assert scheduled.firing.fire_due() == ["kill"]


def test_a_role_for_another_run_kills_nothing_and_the_failure_is_kept(
    scheduled: Scheduled,
) -> None:
    sqs = scheduled.client("sqs")
    url = sqs.create_queue(QueueName="dead")["QueueUrl"]
    scheduled.schedule(
        scheduled.role(run="r2"),
        RetryPolicy={"MaximumRetryAttempts": 1},
        DeadLetterConfig={"Arn": f"{QUEUES}:dead"},
    )
    scheduled.now = DUE
    assert scheduled.firing.fire_due() == []
    assert scheduled.left() == ["kill"]
    scheduled.now += timedelta(seconds=1)
    assert scheduled.firing.fire_due() == []
    assert scheduled.state() == "running"
    assert scheduled.left() == []
    letters = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
    said = {name: each["StringValue"] for name, each in letters[0]["MessageAttributes"].items()}
    assert "doesn't allow" in said["ERROR_MESSAGE"]
    assert said["SCHEDULE_ARN"].endswith("/kill")


def test_a_failure_is_lost_when_the_role_may_not_write_to_the_queue(scheduled: Scheduled) -> None:
    sqs = scheduled.client("sqs")
    url = sqs.create_queue(QueueName="dead")["QueueUrl"]
    scheduled.schedule(
        scheduled.role(run="r2", tells=False),
        RetryPolicy={"MaximumRetryAttempts": 0},
        DeadLetterConfig={"Arn": f"{QUEUES}:dead"},
    )
    scheduled.now = DUE
    assert scheduled.firing.fire_due() == []
    assert scheduled.left() == []
    assert "Messages" not in sqs.receive_message(QueueUrl=url)


def test_a_role_deleted_since_kills_nothing_and_harms_no_other_schedule(
    scheduled: Scheduled,
) -> None:
    role = scheduled.role()
    scheduled.schedule(role, name="first")
    scheduled.schedule(role, name="second")
    iam = scheduled.client("iam")
    iam.delete_role_policy(RoleName="kill", PolicyName="p")
    iam.delete_role(RoleName="kill")
    scheduled.now = DUE
    assert scheduled.firing.fire_due() == []
    scheduled.role()
    scheduled.now += timedelta(seconds=1)
    assert set(scheduled.firing.fire_due()) == {"first", "second"}
    assert scheduled.state() == "terminated"


class Guarded(Scheduled):
    """The instance carries a box's tag, and a schedule ends what does."""

    def guard(self, **target: Any) -> None:
        ec2 = self.client("ec2")
        ec2.create_tags(Resources=[self.box], Tags=[{"Key": "gpurun:guard", "Value": "r1/l4"}])
        asked = {
            "DocumentName": "AWS-TerminateEC2Instance",
            "TargetParameterName": "InstanceId",
            "Targets": [{"Key": "tag:gpurun:guard", "Values": ["r1/l4"]}],
            "Parameters": {"AutomationAssumeRole": [self.arn]},
        }
        arn = "arn:aws:scheduler:::aws-sdk:ssm:startAutomationExecution"
        self.schedule(self.arn, Arn=arn, Input=json.dumps(asked), **target)

    def lending(self, *actions: str, trusted: tuple[str, ...] = ("scheduler", "ssm")) -> None:
        """A role for both services that may do so, and end this run's instances."""
        self.arn = self.role()
        iam = self.client("iam")
        services = {"Service": [f"{name}.amazonaws.com" for name in trusted]}
        document = {**TRUST, "Statement": {**TRUST["Statement"], "Principal": services}}  # type: ignore[dict-item]
        iam.update_assume_role_policy(RoleName="kill", PolicyDocument=json.dumps(document))
        allowed = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
        more = json.dumps({"Version": "2012-10-17", "Statement": allowed})
        iam.put_role_policy(RoleName="kill", PolicyName="more", PolicyDocument=more)


LOOKS = ("tag:GetResources", "ec2:DescribeInstances", "ec2:DescribeInstanceStatus")
STARTS = ("ssm:StartAutomationExecution", "iam:PassRole")


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    clock: list[Guarded] = []
    with strict_aws(now=lambda: clock[0].now if clock else START):
        clock.append(Guarded(clients_of(None)))
        yield clock[0]


def test_a_guard_ends_what_carries_its_tag_at_its_time(guarded: Guarded) -> None:
    guarded.lending(*STARTS, *LOOKS)
    guarded.guard()
    guarded.now = DUE - timedelta(seconds=1)
    assert guarded.firing.fire_due() == []
    assert guarded.state() == "running"
    guarded.now = DUE
    assert guarded.firing.fire_due() == ["kill"]
    assert guarded.state() == "terminated"
    assert guarded.left() == []


@pytest.mark.parametrize("lost", STARTS)
def test_a_guard_that_may_not_start_or_lend_its_role_fails(guarded: Guarded, lost: str) -> None:
    guarded.lending(*(set(STARTS) - {lost}), *LOOKS)
    guarded.guard(RetryPolicy={"MaximumRetryAttempts": 0})
    guarded.now = DUE
    assert guarded.firing.fire_due() == []
    assert guarded.state() == "running"


@pytest.mark.parametrize("lost", LOOKS)
def test_an_automation_that_can_t_find_its_instances_fails_unheard(
    guarded: Guarded, lost: str
) -> None:
    guarded.lending(*STARTS, *(set(LOOKS) - {lost}))
    guarded.guard()
    guarded.now = DUE
    assert guarded.firing.fire_due() == ["kill"]
    assert guarded.state() == "running"


def test_a_role_that_doesn_t_let_ssm_in_is_no_automations(guarded: Guarded) -> None:
    guarded.lending(*STARTS, *LOOKS, trusted=("scheduler",))
    guarded.guard(RetryPolicy={"MaximumRetryAttempts": 0})
    guarded.now = DUE
    assert guarded.firing.fire_due() == []
    assert guarded.state() == "running"
