"""The cloud's own kill switches, at an absolute time: a box's guard, and one of each instance.

They work with the controller dead and the box wedged. The guard is there before the box: it has
SSM Automation end what then carries the box's tag. The instance's own schedule asks nobody but
EC2, but needs the id, so it can only follow the launch; the caller ends a box that can't have one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from orchestrator.aws import dead_letters
from orchestrator.aws.refusals import boundary, code, is_missing, is_not_known_yet
from orchestrator.aws.removal import remove
from orchestrator.aws.role_policies import RUNBOOK
from orchestrator.aws.tags import GUARD, GUARD_SUFFIX, PREFIX, REAPER, RunTags, guarded, named
from orchestrator.aws.waits import PROPAGATION_S

if TYPE_CHECKING:
    from mypy_boto3_scheduler.type_defs import (
        FlexibleTimeWindowTypeDef,
        GetScheduleOutputTypeDef,
        TargetTypeDef,
    )

    from orchestrator.aws.session import Session

GROUP = "default"
_END, _AUTOMATION = "ec2:terminateInstances", "ssm:startAutomationExecution"
_AT = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
# The longest that the scheduler retries a target: a day, 185 times.
_RETRIES = 185
_RETRY_FOR_S = 86_400


@boundary()
def ensure_kill(
    session: Session, tags: RunTags, box: str, instance_id: str, at: datetime, role_arn: str
) -> None:
    """Terminate `instance_id` at `at` (aware) unless it is gone by then; fires within a minute.

    A schedule of that box which names another instance or time is replaced. What it fails at for
    good goes to the run's dead letters. A new role takes seconds to be known to the scheduler, so
    the refusal that says so is retried for a minute.

    Raises:
        ApiError: it can't be made: end the box at once.
    """
    asked = {"InstanceIds": [instance_id]}
    _ensure(session, tags, named(tags.run_id, box), at, _END, asked, role_arn)


@boundary()
def ensure_guard(session: Session, tags: RunTags, box: str, at: datetime, role_arn: str) -> None:
    """At `at` (aware), terminate every instance that carries the box's tag by then.

    Needs no instance, so it can be made before the first launch. The role also does the
    automation's work. SSM refuses a second tag, so the tag's value is the box's alone.

    Raises:
        ApiError: it can't be made: launch nothing.
    """
    asked = {
        "DocumentName": RUNBOOK,
        "TargetParameterName": "InstanceId",
        "Targets": [{"Key": f"tag:{GUARD}", "Values": [guarded(tags.run_id, box)]}],
        "Parameters": {"AutomationAssumeRole": [role_arn]},
        "MaxConcurrency": "100%",
        "MaxErrors": "100%",
    }
    _ensure(session, tags, guard_name(tags.run_id, box), at, _AUTOMATION, asked, role_arn)


def guard_name(run_id: str, box: str) -> str:
    """What a box's guard is called; its instance's own schedule is `named(run_id, box)`."""
    return named(run_id, f"{box}{GUARD_SUFFIX}")


def _ensure(
    session: Session,
    tags: RunTags,
    name: str,
    at: datetime,
    action: str,
    asked: Mapping[str, object],
    role_arn: str,
) -> None:
    expression = f"at({at.astimezone(UTC):%Y-%m-%dT%H:%M:%S})"
    letters = dead_letters.ensure_queue(session, tags)
    target = _target(session, action, asked, role_arn, letters)
    present = _get(session, name)
    if present and _is_same(present, expression, target):
        return
    session.patience.retry(
        lambda: _put(session, name, expression, target, replace=present is not None),
        when=is_not_known_yet,
        timeout_s=PROPAGATION_S,
    )


@boundary()
def find_kills(session: Session, run_id: str | None = None) -> list[str]:
    """Names of the run's schedules, guards too, or of all runs' in this region."""
    prefix = f"{named(run_id)}-" if run_id else f"{PREFIX}-"
    pages = (
        session.client("scheduler")
        .get_paginator("list_schedules")
        .paginate(GroupName=GROUP, NamePrefix=prefix)
    )
    names = [entry["Name"] for page in pages for entry in page["Schedules"]]
    return sorted(name for name in names if name.startswith(prefix) and name != REAPER)


@boundary()
def fires_at(session: Session, name: str) -> datetime | None:
    """When a schedule of ours fires (UTC); None if it is gone or isn't a one-time schedule."""
    found = _get(session, name)
    match = _AT.fullmatch(found["ScheduleExpression"]) if found else None
    return datetime.fromisoformat(f"{match[1]}+00:00") if match else None


@boundary()
def delete_kills(session: Session, run_id: str) -> None:
    """Delete the run's schedules; to be done only when its instances are gone."""
    for name in find_kills(session, run_id):
        remove(session, session.client("scheduler").delete_schedule, Name=name, GroupName=GROUP)


def _target(
    session: Session, action: str, asked: Mapping[str, object], role_arn: str, letters_arn: str
) -> TargetTypeDef:
    return {
        "Arn": f"arn:{session.partition}:scheduler:::aws-sdk:{action}",
        "RoleArn": role_arn,
        "Input": json.dumps(asked),
        "RetryPolicy": {
            "MaximumRetryAttempts": _RETRIES,
            "MaximumEventAgeInSeconds": _RETRY_FOR_S,
        },
        "DeadLetterConfig": {"Arn": letters_arn},
    }


def _put(
    session: Session, name: str, expression: str, target: TargetTypeDef, *, replace: bool
) -> None:
    # The name makes it unique. A ClientToken of ours would hide that a schedule was deleted since.
    client = session.client("scheduler")
    whenever: FlexibleTimeWindowTypeDef = {"Mode": "OFF"}
    write = client.update_schedule if replace else client.create_schedule
    try:
        write(
            Name=name,
            GroupName=GROUP,
            Description="Terminates a box of a gpurun run at the run's last deadline",
            ScheduleExpression=expression,
            ScheduleExpressionTimezone="UTC",
            FlexibleTimeWindow=whenever,
            ActionAfterCompletion="DELETE",
            State="ENABLED",
            Target=target,
        )
    except Exception as error:
        if code(error) != "ConflictException" or replace:
            raise
        _put(session, name, expression, target, replace=True)


def _get(session: Session, name: str) -> GetScheduleOutputTypeDef | None:
    try:
        return session.client("scheduler").get_schedule(Name=name, GroupName=GROUP)
    except Exception as error:
        if not is_missing(error):
            raise
        return None


def _is_same(present: GetScheduleOutputTypeDef, expression: str, target: TargetTypeDef) -> bool:
    return (
        present["ScheduleExpression"] == expression
        and present.get("State") == "ENABLED"
        and all(
            present["Target"].get(key) == target.get(key)
            for key in ("Arn", "RoleArn", "Input", "DeadLetterConfig")
        )
    )
