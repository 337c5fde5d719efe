"""CreateSchedule as EventBridge Scheduler answers it: moto accepts any text."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import botocore.session
from botocore.exceptions import UnknownServiceError
from moto.scheduler.exceptions import ValidationException
from moto.scheduler.models import EventBridgeSchedulerBackend
from moto.scheduler.responses import EventBridgeSchedulerResponse
from moto.ssm.exceptions import SSMException

from orchestrator.localcloud.rules import automation, identity
from orchestrator.localcloud.rules.patches import Patches
from orchestrator.localcloud.rules.settings import StrictRules

SERVICE = "scheduler.amazonaws.com"
AUTOMATION = ("ssm", "StartAutomationExecution")
_AT = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
_REPEATED = re.compile(r"(rate|cron)\([^()]+\)")
_UNIVERSAL_TARGET = re.compile(r"arn:aws:scheduler:::aws-sdk:([a-z0-9-]+):([a-zA-Z0-9]+)")
_FUNCTION = re.compile(r"arn:aws:lambda:[a-z0-9-]+:\d{12}:function:[a-zA-Z0-9_-]+")
_READ_ONLY = ("describe", "get", "list", "head", "search", "query", "scan", "batchGet")


def install(patches: Patches, rules: StrictRules) -> None:
    patches.replace(
        EventBridgeSchedulerResponse, "create_schedule", lambda stock: _response(stock, rules)
    )
    for name in ("create_schedule", "update_schedule"):
        patches.replace(EventBridgeSchedulerBackend, name, lambda stock: _validated(stock, rules))


def due_at(expression: str, timezone: str) -> datetime | None:
    """When a one-time expression fires, in UTC; None for rate and cron."""
    found = _AT.fullmatch(expression)
    if not found:
        return None
    local = datetime.fromisoformat(found[1]).replace(tzinfo=ZoneInfo(timezone or "UTC"))
    return local.astimezone(UTC)


def universal_target(arn: str) -> tuple[str, str]:
    """The botocore service and API operation of a universal target; raises ValidationException."""
    found = _UNIVERSAL_TARGET.fullmatch(arn)
    if not found:
        raise ValidationException(f"Provided Arn is not in correct format: {arn}")
    service, action = found.groups()
    operation = action[0].upper() + action[1:]
    if action[0].isupper() or operation not in _operations(service):
        raise ValidationException(f"{action} is not a supported API action for {service}.")
    if action.startswith(_READ_ONLY):
        raise ValidationException(f"{action} is a read-only API action and is not supported.")
    return service, operation


@cache
def _operations(service: str) -> frozenset[str]:
    try:
        return frozenset(botocore.session.Session().get_service_model(service).operation_names)
    except UnknownServiceError:
        return frozenset()


def _response(stock: Any, rules: StrictRules) -> Any:
    def create_schedule(self: Any) -> Any:
        token = self._get_param("ClientToken")
        key = (self.current_account, self.region, f"schedule/{token}")
        asked = {k: v for k, v in self._get_params().items() if k != "ClientToken"}
        if token and key in rules.client_tokens and rules.client_tokens[key][0] == asked:
            return rules.client_tokens[key][1]
        answer = stock(self)
        if token:
            rules.client_tokens[key] = (asked, answer)
        return answer

    return create_schedule


def _validated(stock: Any, rules: StrictRules) -> Any:
    def write_schedule(self: Any, **k: Any) -> Any:
        _check_name(k["name"])
        _check_time(k["schedule_expression"], k["schedule_expression_timezone"], rules.now())
        _check_target(self, k["target"], rules)
        return stock(self, **k)

    return write_schedule


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[0-9a-zA-Z_.-]{1,64}", name):
        raise ValidationException(
            "1 validation error detected: Value at 'name' failed to satisfy constraint: "
            "Member must satisfy regular expression pattern: ^[0-9a-zA-Z-_.]+$ and have length "
            "less than or equal to 64"
        )


def _check_time(expression: str, timezone: str, now: datetime) -> None:
    try:
        due = due_at(expression, timezone)
    except (ValueError, KeyError) as wrong:
        raise ValidationException(f"Invalid Schedule Expression {expression}.") from wrong
    if due is None and not _REPEATED.fullmatch(expression):
        raise ValidationException(f"Invalid Schedule Expression {expression}.")
    if due is not None and due <= now:
        raise ValidationException(
            f"Invalid Schedule Expression {expression}. The time must be in the future."
        )


def _check_target(backend: Any, target: dict[str, Any], rules: StrictRules) -> None:
    called = () if _FUNCTION.fullmatch(target["Arn"]) else universal_target(target["Arn"])
    role = identity.role_by_arn(backend.account_id, backend.region_name, target["RoleArn"])
    if role is None or not identity.can_be_assumed(role, SERVICE, rules):
        raise ValidationException(
            "The execution role you provide must allow AWS EventBridge Scheduler to assume the "
            "role."
        )
    try:
        asked = json.loads(target.get("Input") or "{}")
    except ValueError as wrong:
        raise ValidationException("Target Input is not valid JSON.") from wrong
    if called == AUTOMATION:
        _check_automation(asked)


def _check_automation(asked: dict[str, Any]) -> None:
    """AWS looks at it only when it fires; a rehearsal must fail at once."""
    try:
        automation.checked(asked)
    except SSMException as wrong:
        raise ValidationException(f"{wrong.code}: {wrong.message}") from wrong
