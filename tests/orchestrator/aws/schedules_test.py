"""The kill schedule: the request to the letter, one per instance, in force before it is needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from orchestrator.aws.role import ensure_kill_role
from orchestrator.aws.schedules import (
    delete_kills,
    ensure_guard,
    ensure_kill,
    find_kills,
    fires_at,
    guard_name,
)
from orchestrator.aws.session import Session
from orchestrator.aws.tags import RunTags, named
from orchestrator.errors import ApiError
from orchestrator.fields import BoxName
from orchestrator.localcloud.strict import StrictRules
from orchestrator.run import RUN_ID
from tests.fake_clock import FakeClock

from .account import OTHER_RUN, RUN, Recorder, tags_of

NAME = f"gpurun-{RUN}-l4"
AT = datetime(2026, 11, 29, 23, 15, 30, 999_999, tzinfo=UTC)


@pytest.fixture
def role_arn(session: Session, tags: RunTags) -> str:
    return ensure_kill_role(session, tags)


def test_the_request_is_exactly_this(
    session: Session, tags: RunTags, role_arn: str, record: Callable[[Any, str], Recorder]
) -> None:
    made = record("scheduler", "CreateSchedule")
    ensure_kill(session, tags, "l4", "i-1", AT, role_arn)
    (asked,) = made.calls
    assert asked.pop("Description")
    assert asked == {
        "Name": NAME,
        "GroupName": "default",
        "ScheduleExpression": "at(2026-11-29T23:15:30)",
        "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
        "State": "ENABLED",
        "Target": {
            "Arn": "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances",
            "RoleArn": f"arn:aws:iam::123456789012:role/gpurun/gpurun-{RUN}-kill",
            "Input": json.dumps({"InstanceIds": ["i-1"]}),
            "RetryPolicy": {"MaximumRetryAttempts": 185, "MaximumEventAgeInSeconds": 86_400},
            "DeadLetterConfig": {"Arn": f"arn:aws:sqs:us-east-1:123456789012:gpurun-{RUN}-dead"},
        },
    }


def test_the_guard_asks_for_what_will_carry_the_boxs_tag(
    session: Session, tags: RunTags, role_arn: str, record: Callable[[Any, str], Recorder]
) -> None:
    made = record("scheduler", "CreateSchedule")
    for _ in range(2):
        ensure_guard(session, tags, "l4", AT, role_arn)
    (asked,) = made.calls
    assert asked["Name"] == f"{NAME}.tag"
    assert asked["ScheduleExpression"] == "at(2026-11-29T23:15:30)"
    assert asked["Target"]["Arn"] == ("arn:aws:scheduler:::aws-sdk:ssm:startAutomationExecution")
    assert json.loads(asked["Target"]["Input"]) == {
        "DocumentName": "AWS-TerminateEC2Instance",
        "TargetParameterName": "InstanceId",
        "Targets": [{"Key": "tag:gpurun:guard", "Values": [f"{RUN}/l4"]}],
        "Parameters": {"AutomationAssumeRole": [role_arn]},
        "MaxConcurrency": "100%",
        "MaxErrors": "100%",
    }
    assert asked["Target"]["RoleArn"] == role_arn
    assert asked["Target"]["DeadLetterConfig"]["Arn"].endswith(f"gpurun-{RUN}-dead")


def test_a_guard_goes_with_the_runs_schedules(
    session: Session, tags: RunTags, role_arn: str
) -> None:
    ensure_guard(session, tags, "l4", AT, role_arn)
    ensure_kill(session, tags, "l4", "i-1", AT, role_arn)
    assert find_kills(session, RUN) == [NAME, f"{NAME}.tag"]
    assert fires_at(session, guard_name(RUN, "l4")) == AT.replace(microsecond=0)
    delete_kills(session, RUN)
    assert find_kills(session) == []


@pytest.mark.parametrize("box", ["l4.tag", "l4tag"])
def test_no_boxs_schedule_is_another_boxs_guard(box: str) -> None:
    """A box's name has no dot, so no box can be called as another box's guard is."""
    allowed = TypeAdapter(BoxName)
    if guard_name(RUN, "l4") == named(RUN, box):
        with pytest.raises(ValidationError):
            allowed.validate_python(box)
    else:
        assert allowed.validate_python(box) == box


def test_the_longest_names_make_a_schedules_name() -> None:
    run_id = f"{'r' * 16}-261129-190000-ab2c"
    assert RUN_ID.fullmatch(run_id)
    assert len(guard_name(run_id, "b" * 16)) <= 64


def test_another_zone_of_time_means_the_same_instant(
    session: Session, tags: RunTags, role_arn: str
) -> None:
    there = AT.astimezone(timezone(timedelta(hours=5, minutes=45)))
    ensure_kill(session, tags, "l4", "i-1", there, role_arn)
    assert fires_at(session, NAME) == AT.replace(microsecond=0)


def test_a_second_call_sends_nothing(
    session: Session, tags: RunTags, role_arn: str, record: Callable[[Any, str], Recorder]
) -> None:
    ensure_kill(session, tags, "l4", "i-1", AT, role_arn)
    recorders = [record("scheduler", name) for name in ("CreateSchedule", "UpdateSchedule")]
    ensure_kill(session, tags, "l4", "i-1", AT, role_arn)
    assert [recorder.calls for recorder in recorders] == [[], []]


@pytest.mark.parametrize(
    "instance,at",
    [("i-2", AT), ("i-1", AT + timedelta(minutes=10)), ("i-2", AT - timedelta(1 / 24))],
)
def test_a_schedule_of_another_instance_or_time_is_replaced(
    session: Session, tags: RunTags, role_arn: str, instance: str, at: datetime
) -> None:
    ensure_kill(session, tags, "l4", "i-1", AT, role_arn)
    ensure_kill(session, tags, "l4", instance, at, role_arn)
    (name,) = find_kills(session, RUN)
    found = session.client("scheduler").get_schedule(Name=name)
    assert json.loads(found["Target"]["Input"]) == {"InstanceIds": [instance]}
    assert fires_at(session, name) == at.replace(microsecond=0)
    assert found["ActionAfterCompletion"] == "DELETE"


def test_a_role_that_the_scheduler_does_not_know_yet_is_waited_for(
    session: Session, tags: RunTags, rules: StrictRules, clock: FakeClock, role_arn: str
) -> None:
    rules.role_delay_s = 15
    ensure_kill(session, tags, "l4", "i-1", AT, role_arn)
    assert find_kills(session, RUN) == [NAME]
    assert 15 <= clock.waited_s < 30


def test_a_role_that_never_appears_is_given_up(
    session: Session, tags: RunTags, clock: FakeClock
) -> None:
    with pytest.raises(ApiError, match="assume the role"):
        ensure_kill(session, tags, "l4", "i-1", AT, "arn:aws:iam::123456789012:role/none")
    assert clock.waited_s <= 61


def test_a_time_that_has_passed_is_an_error_at_once(
    session: Session, tags: RunTags, role_arn: str, clock: FakeClock
) -> None:
    with pytest.raises(ApiError, match="CreateSchedule"):
        ensure_kill(session, tags, "l4", "i-1", clock.now() - timedelta(1), role_arn)
    assert clock.waited_s == 0


def test_one_runs_schedules_are_deleted_and_no_other_ones(
    session: Session, tags: RunTags, role_arn: str, clock: FakeClock
) -> None:
    other = tags_of(OTHER_RUN, session, clock)
    for box in ("l4", "l40s"):
        ensure_kill(session, tags, box, "i-1", AT, role_arn)
    ensure_kill(session, other, "l4", "i-9", AT, ensure_kill_role(session, other))
    for _ in range(2):
        delete_kills(session, RUN)
    assert find_kills(session) == [f"gpurun-{OTHER_RUN}-l4"]


def test_a_schedule_that_was_deleted_is_made_again(
    session: Session, tags: RunTags, role_arn: str
) -> None:
    ensure_kill(session, tags, "l4", "i-1", AT, role_arn)
    delete_kills(session, RUN)
    ensure_kill(session, tags, "l4", "i-1", AT, role_arn)
    assert find_kills(session, RUN) == [NAME]


def test_a_schedule_that_is_gone_fires_never(session: Session) -> None:
    assert fires_at(session, NAME) is None
