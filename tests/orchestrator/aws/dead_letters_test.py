"""Dead letters: one queue a run, read by many, gone with the run, and told before it goes."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from threading import RLock
from typing import Any

import pytest

from orchestrator.aws.dead_letters import (
    Letter,
    delete_queue,
    ensure_queue,
    find_queues,
    queue_arn,
    read_letters,
    tags_of,
)
from orchestrator.aws.role import ensure_kill_role
from orchestrator.aws.session import Session
from orchestrator.aws.stack import leftovers, teardown
from orchestrator.aws.tags import EXPIRES_AT, RUN, RunTags
from orchestrator.localcloud.firing import Firing, clients_of
from orchestrator.localcloud.strict import StrictRules
from tests.fake_clock import FakeClock

from .account import OTHER_RUN, Recorder, Stack
from .account import RUN as RUN_ID
from .account import tags_of as run_tags

NAME = f"gpurun-{RUN_ID}-dead"


def send(session: Session, **attributes: str) -> None:
    sqs = session.client("sqs")
    sqs.send_message(
        QueueUrl=sqs.get_queue_url(QueueName=NAME)["QueueUrl"],
        MessageBody=json.dumps({"InstanceIds": ["i-1"]}),
        MessageAttributes={
            name: {"DataType": "String", "StringValue": text} for name, text in attributes.items()
        },
    )


def test_the_request_is_exactly_this(
    session: Session, tags: RunTags, record: Callable[[Any, str], Recorder]
) -> None:
    made = record("sqs", "CreateQueue")
    arn = ensure_queue(session, tags)
    (asked,) = made.calls
    assert asked["QueueName"] == NAME
    assert asked["Attributes"] == {"MessageRetentionPeriod": "1209600"}
    assert asked["tags"][RUN] == RUN_ID
    assert asked["tags"][EXPIRES_AT] == "2026-11-29T22:00:00Z"
    assert arn == queue_arn(session, RUN_ID) == f"arn:aws:sqs:us-east-1:123456789012:{NAME}"


def test_a_second_call_and_one_after_somebody_changed_it_are_fine(
    session: Session, tags: RunTags
) -> None:
    ensure_queue(session, tags)
    sqs = session.client("sqs")
    url = sqs.get_queue_url(QueueName=NAME)["QueueUrl"]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"MessageRetentionPeriod": "60"})
    ensure_queue(session, tags)
    assert find_queues(session, RUN_ID) == [NAME]


def test_reading_takes_nothing_away(session: Session, tags: RunTags) -> None:
    ensure_queue(session, tags)
    arn = f"arn:aws:scheduler:us-east-1:123456789012:schedule/default/gpurun-{RUN_ID}-l4"
    send(session, SCHEDULE_ARN=arn, ERROR_MESSAGE="no role")
    for _ in range(2):
        assert read_letters(session, RUN_ID) == [Letter("l4", "no role")]


def test_a_letter_of_a_guard_names_its_box(session: Session, tags: RunTags) -> None:
    ensure_queue(session, tags)
    arn = f"arn:aws:scheduler:us-east-1:123456789012:schedule/default/gpurun-{RUN_ID}-l4.tag"
    send(session, SCHEDULE_ARN=arn, ERROR_MESSAGE="no role")
    assert read_letters(session, RUN_ID) == [Letter("l4", "its guard: no role")]


def test_a_letter_that_names_no_schedule_names_the_instance(
    session: Session, tags: RunTags
) -> None:
    ensure_queue(session, tags)
    send(session)
    assert read_letters(session, RUN_ID) == [Letter("i-1", "no reason given")]


def test_no_queue_holds_no_letters(session: Session) -> None:
    assert read_letters(session, RUN_ID) == []
    delete_queue(session, RUN_ID)


def test_one_runs_queue_is_deleted_and_no_other_one(
    session: Session, tags: RunTags, clock: FakeClock
) -> None:
    ensure_queue(session, tags)
    ensure_queue(session, run_tags(OTHER_RUN, session, clock))
    for _ in range(2):
        delete_queue(session, RUN_ID)
    assert find_queues(session) == [f"gpurun-{OTHER_RUN}-dead"]


def test_a_queue_that_is_deleted_but_still_listed_is_not_left_over(
    session: Session, tags: RunTags, rules: StrictRules
) -> None:
    rules.queue_linger_s = 60
    ensure_queue(session, tags)
    delete_queue(session, RUN_ID)
    assert find_queues(session, RUN_ID) == [NAME]
    assert tags_of(session, NAME) is None
    assert leftovers(session, RUN_ID) == []


def test_a_name_that_was_deleted_a_moment_ago_is_waited_for(
    session: Session, tags: RunTags, clock: FakeClock
) -> None:
    ensure_queue(session, tags)
    delete_queue(session, RUN_ID)
    ensure_queue(session, tags)
    assert find_queues(session, RUN_ID) == [NAME]
    assert 60 <= clock.waited_s <= 75


def test_a_queue_without_its_tags_is_found_by_its_name(session: Session) -> None:
    session.client("sqs").create_queue(QueueName=NAME)
    assert [(item.kind, item.id, item.run) for item in leftovers(session)] == [
        ("queue", NAME, RUN_ID)
    ]


def test_a_queue_of_somebody_else_is_none_of_ours(session: Session) -> None:
    session.client("sqs").create_queue(QueueName="gpurunners-dead")
    session.client("sqs").create_queue(QueueName="gpurun-jobs")
    assert find_queues(session) == []


def test_a_kill_that_fails_for_good_is_told_before_its_queue_goes(
    stack: Stack, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The whole way: the schedule fires, its role may not, its letter says why."""
    session = stack.session
    stack.arm(stack.launch("l4"))
    role = ensure_kill_role(session, stack.tags).rpartition("/")[2]
    told = {
        "Effect": "Allow",
        "Action": "sqs:SendMessage",
        "Resource": queue_arn(session, RUN_ID),
    }
    session.client("iam").put_role_policy(
        RoleName=role,
        PolicyName="gpurun",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [told]}),
    )
    clock.at = stack.tags.expires_at + timedelta(days=1, minutes=1)
    assert Firing(clients_of(None), RLock(), clock.now).fire_due() == []
    (letter,) = read_letters(session, RUN_ID)
    assert letter.box == "l4"
    assert "doesn't allow ec2:TerminateInstances" in letter.reason
    assert teardown(session, RUN_ID, clock.now()) == []
    assert "own switch for l4" in caplog.text
    assert find_queues(session) == []
