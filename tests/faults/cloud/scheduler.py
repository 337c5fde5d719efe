"""EventBridge Scheduler: what it refuses, and one-time schedules that fire on the timeline.

A target that fails is tried again with growing pauses, as its retry policy says, and ends in the
dead-letter queue if the schedule's role may write there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from orchestrator.localcloud import policy
from tests.faults.cloud import automation
from tests.faults.cloud.access import api_name, may_be_assumed
from tests.faults.cloud.account import Account
from tests.faults.cloud.ec2 import Ec2
from tests.faults.cloud.refusal import Refused
from tests.faults.cloud.service import Service
from tests.faults.cloud.sqs import Sqs
from tests.faults.cloud.ssm import Ssm
from tests.faults.cloud.things import Json
from tests.faults.cloud.timeline import Event

SERVICE = "scheduler.amazonaws.com"
_AT = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
_REPEATED = re.compile(r"(rate|cron)\([^()]+\)")
_TARGET = re.compile(r"arn:aws:scheduler:::aws-sdk:([a-z0-9-]+):([a-zA-Z0-9]+)")
_READ_ONLY = ("describe", "get", "list", "head", "search", "query", "scan", "batchGet")
_NAME = re.compile(r"[0-9a-zA-Z_.-]{1,64}")
_TARGETS = {"ec2": Ec2, "sqs": Sqs, "ssm": Ssm}
_AUTOMATION = ("ssm", "start_automation_execution")
_LONGEST_PAUSE_S = 480
Ask = tuple[str, str, dict[str, str]]


@dataclass
class Schedule:
    """`asked` is what Create- or UpdateSchedule said."""

    name: str
    group: str
    arn: str
    region: str
    asked: Json
    made_at: datetime
    due: datetime | None
    token: str = ""
    attempts: int = 0
    event: Event | None = None

    @property
    def state(self) -> str:
        return str(self.asked["State"])

    def call_off(self) -> None:
        if self.event:
            self.event.off = True


class Scheduler(Service):
    def create_schedule(
        self, *, Name: str, GroupName: str = "default", ClientToken: str = "", **asked: Any
    ) -> Json:
        key, schedules = (GroupName, Name), self._region.schedules
        wanted = _complete(asked)
        present = schedules.get(key)
        if present is not None:
            if ClientToken and present.token == ClientToken and present.asked == wanted:
                return {"ScheduleArn": present.arn}
            raise Refused("ConflictException", f"Schedule {Name} already exists.", 409)
        due = self._checked(Name, wanted)
        arn = self._arn("schedule", f"{GroupName}/{Name}")
        now = self._account.timeline.time()
        schedule = Schedule(
            Name, GroupName, arn, self._region.name, wanted, now, due, token=ClientToken
        )
        schedules[key] = schedule
        _arm(self._account, schedule)
        return {"ScheduleArn": arn}

    def update_schedule(
        self, *, Name: str, GroupName: str = "default", ClientToken: str = "", **asked: Any
    ) -> Json:
        schedule = self._find(Name, GroupName)
        wanted = _complete(asked)
        schedule.due = self._checked(Name, wanted)
        schedule.asked, schedule.attempts = wanted, 0
        schedule.call_off()
        _arm(self._account, schedule)
        return {"ScheduleArn": schedule.arn}

    def get_schedule(self, *, Name: str, GroupName: str = "default") -> Json:
        schedule = self._find(Name, GroupName)
        return {"Name": Name, "GroupName": GroupName, "Arn": schedule.arn, **schedule.asked}

    def list_schedules(
        self, *, GroupName: str = "", NamePrefix: str = "", State: str = ""
    ) -> Json:
        return {
            "Schedules": [
                {
                    "Name": schedule.name,
                    "GroupName": schedule.group,
                    "Arn": schedule.arn,
                    "State": schedule.state,
                    "CreationDate": schedule.made_at,
                    "Target": {"Arn": schedule.asked["Target"]["Arn"]},
                }
                for schedule in self._region.schedules.values()
                if GroupName in ("", schedule.group)
                and schedule.name.startswith(NamePrefix)
                and State in ("", schedule.state)
            ]
        }

    def delete_schedule(
        self, *, Name: str, GroupName: str = "default", ClientToken: str = ""
    ) -> Json:
        schedule = self._find(Name, GroupName)
        schedule.call_off()
        del self._region.schedules[GroupName, Name]
        return {}

    def _find(self, name: str, group: str) -> Schedule:
        schedule = self._region.schedules.get((group, name))
        if schedule is None:
            raise Refused("ResourceNotFoundException", f"Schedule {name} does not exist.", 404)
        return schedule

    def _arn(self, kind: str, name: str) -> str:
        return f"arn:aws:scheduler:{self._region.name}:{self._account.id}:{kind}/{name}"

    def _checked(self, name: str, asked: Json) -> datetime | None:
        """When it fires; None for one that repeats. Refuses what could never fire."""
        if not _NAME.fullmatch(name):
            raise _invalid("Value at 'name' failed to satisfy constraint")
        due = self._due(asked["ScheduleExpression"], asked["ScheduleExpressionTimezone"])
        target = asked["Target"]
        called = universal_target(target["Arn"])
        role = next((r for r in self._account.roles.values() if r.arn == target["RoleArn"]), None)
        group = self._arn("schedule-group", "default")
        if role is None or not may_be_assumed(self._account, role, SERVICE, group):
            raise _invalid(
                "The execution role you provide must allow AWS EventBridge Scheduler to assume "
                "the role."
            )
        _check_input(called, target.get("Input") or "{}")
        return due

    def _due(self, expression: str, zone: str) -> datetime | None:
        found = _AT.fullmatch(expression)
        if not found and not _REPEATED.fullmatch(expression):
            raise _invalid(f"Invalid Schedule Expression {expression}.")
        if not found:
            return None
        try:
            local = datetime.fromisoformat(found[1])
            due = local.replace(tzinfo=UTC if zone == "UTC" else ZoneInfo(zone)).astimezone(UTC)
        except (ValueError, KeyError, OSError):
            raise _invalid(f"Invalid Schedule Expression {expression}.") from None
        if due <= self._account.timeline.time():
            raise _invalid(
                f"Invalid Schedule Expression {expression}. The time must be in the future."
            )
        return due


def universal_target(arn: str) -> tuple[str, str]:
    """The service and boto3's name of the operation."""
    found = _TARGET.fullmatch(arn)
    if not found:
        raise _invalid(f"Provided Arn is not in correct format: {arn}")
    service, action = found.groups()
    operation = re.sub("([A-Z])", r"_\1", action).lower()
    if not hasattr(_TARGETS.get(service), operation) or operation.startswith("_"):
        raise _invalid(f"{action} is not a supported API action for {service}.")
    if action.startswith(_READ_ONLY):
        raise _invalid(f"{action} is a read-only API action and is not supported.")
    return service, operation


def _check_input(called: tuple[str, str], text: str) -> None:
    """AWS looks at an automation's only when it fires; the stand-ins refuse it at once."""
    try:
        asked = json.loads(text)
    except ValueError:
        raise _invalid("Target Input is not valid JSON.") from None
    if called == _AUTOMATION:
        try:
            automation.checked(asked)
        except Refused as wrong:
            raise _invalid(f"{wrong.code}: {wrong.message}") from None


def _complete(asked: Json) -> Json:
    usual = {
        "ScheduleExpressionTimezone": "UTC",
        "State": "ENABLED",
        "ActionAfterCompletion": "NONE",
    }
    return usual | asked


def _invalid(message: str) -> Refused:
    return Refused("ValidationException", message)


def _arm(account: Account, schedule: Schedule) -> None:
    if schedule.due is None or schedule.state != "ENABLED":
        return
    at = schedule.due + timedelta(seconds=account.rules.schedule_delay_s)
    schedule.event = account.timeline.at(at, _firing(account, schedule))


def _firing(account: Account, schedule: Schedule) -> Callable[[], None]:
    return lambda: _fire(account, schedule)


def _fire(account: Account, schedule: Schedule) -> None:
    if not account.schedules_fire:
        account.stalled.append(_again_now(account, schedule))
        return
    try:
        _call_target(account, schedule)
    except Refused as wrong:
        if not _given_up(account, schedule):
            return
        _to_dead_letters(account, schedule, wrong)
    _done(account, schedule)


def _again_now(account: Account, schedule: Schedule) -> Callable[[], None]:
    """The scheduler is back: fires what is still wanted."""
    event = schedule.event

    def act() -> None:
        if event is not None and not event.off:
            schedule.event = account.timeline.after(0.0, _firing(account, schedule))

    return act


def _call_target(account: Account, schedule: Schedule) -> None:
    target = schedule.asked["Target"]
    service, operation = universal_target(target["Arn"])
    arguments = json.loads(target.get("Input") or "{}")
    action = f"{service}:{api_name(operation)}"
    _check_role(account, schedule, _asks(account, schedule.region, action, arguments))
    client = _TARGETS[service](account, schedule.region, "scheduler")
    getattr(client, operation)(**arguments)


def _check_role(account: Account, schedule: Schedule, asks: Iterable[Ask]) -> None:
    arn = schedule.asked["Target"]["RoleArn"]
    role = next((r for r in account.roles.values() if r.arn == arn), None)
    if role is None:
        raise Refused("AccessDenied", f"no role {arn}", 403)
    for action, resource, context in asks:
        if not policy.allows(role.documents, action, resource, context):
            said = f"{arn} doesn't allow {action} on {resource}"
            raise Refused("UnauthorizedOperation", said, 403)


def _asks(account: Account, region: str, action: str, arguments: Json) -> Iterator[Ask]:
    """What IAM is asked before the call: action, resource, context."""
    if action == "ssm:StartAutomationExecution":
        name, place = arguments["DocumentName"], f"arn:aws:ssm:{region}"
        yield action, f"{place}::automation-definition/{name}:$DEFAULT", {}
        yield action, f"{place}::document/{name}", {}
        yield action, f"{place}:{account.id}:automation-execution/new", {}
        for lent in arguments["Parameters"]["AutomationAssumeRole"]:
            yield "iam:PassRole", lent, {"iam:PassedToService": automation.SERVICE}
        return
    for name in arguments.get("InstanceIds", ["*"]):
        instance = account.instances.get(name)
        tags = instance.tags if instance else {}
        context = {f"aws:ResourceTag/{key}": value for key, value in tags.items()}
        yield action, f"arn:aws:ec2:{region}:{account.id}:instance/{name}", context


def _given_up(account: Account, schedule: Schedule) -> bool:
    """No more attempts, or too old; else the next attempt is on the timeline."""
    retries = schedule.asked["Target"].get("RetryPolicy", {})
    now = account.timeline.time()
    schedule.attempts += 1
    age = timedelta(seconds=retries.get("MaximumEventAgeInSeconds", 86_400))
    if schedule.attempts > retries.get("MaximumRetryAttempts", 185):
        return True
    pause = min(2 ** min(schedule.attempts - 1, 10), _LONGEST_PAUSE_S)
    again = now + timedelta(seconds=pause)
    if schedule.due is None or again - schedule.due > age:
        return True
    schedule.event = account.timeline.at(again, _firing(account, schedule))
    return False


def _to_dead_letters(account: Account, schedule: Schedule, wrong: Refused) -> None:
    target = schedule.asked["Target"]
    arn = target.get("DeadLetterConfig", {}).get("Arn", "")
    queue = account.region(schedule.region).queues.get(arn.rpartition(":")[2])
    role = next((r for r in account.roles.values() if r.arn == target["RoleArn"]), None)
    if queue is None or role is None:
        return
    if policy.allows(role.documents, "sqs:SendMessage", arn, {}):
        said = {
            "ERROR_CODE": wrong.code,
            "ERROR_MESSAGE": wrong.message,
            "SCHEDULE_ARN": schedule.arn,
            "TARGET_ARN": target["Arn"],
        }
        queue.send(target.get("Input") or "{}", said)


def _done(account: Account, schedule: Schedule) -> None:
    """A one-time schedule stays behind unless it asked to be deleted."""
    schedules = account.region(schedule.region).schedules
    key = (schedule.group, schedule.name)
    if schedules.get(key) is not schedule:
        return
    if schedule.asked["ActionAfterCompletion"] == "DELETE":
        del schedules[key]
