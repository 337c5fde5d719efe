"""Schedules that fire: one-time EventBridge schedules with a universal target, when they are due.

The target is called through the cloud's own endpoint, after the role's policy has been evaluated.
A failed call is tried again as the retry policy says, and ends in the dead-letter queue. AWS
promises the minute (EventBridge Scheduler User Guide, "Schedule types"); here it is the second.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from threading import RLock
from typing import Any

import boto3
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from moto.scheduler.models import scheduler_backends

from orchestrator.localcloud import policy, rights
from orchestrator.localcloud.rules import identity
from orchestrator.localcloud.rules.scheduling import due_at, universal_target

_log = logging.getLogger(__name__)
_RETRY_AFTER = timedelta(seconds=1)


class AccessRefused(Exception):
    """The schedule's role may not do what its target asks for."""


@dataclass(frozen=True)
class Due:
    """One schedule whose time has come, and the attempts made so far."""

    account: str
    region: str
    schedule: Any
    due: datetime
    attempts: int


class Firing:
    """Fires what is due each time it is asked to; keeps count of attempts between calls."""

    def __init__(
        self, client: Callable[[str, str], Any], lock: RLock, now: Callable[[], datetime]
    ) -> None:
        self._client, self._lock, self._now = client, lock, now
        self._attempts: dict[str, tuple[int, datetime]] = {}

    def fire_due(self) -> list[str]:
        """Names of the schedules whose targets were called with success."""
        with self._lock:
            found = list(self._due())
        return [each.schedule.name for each in found if self._fire(each)]

    def _due(self) -> list[Due]:
        now, found = self._now(), []
        for account, by_region in list(scheduler_backends.items()):
            for region, backend in list(by_region.items()):
                for group in list(backend.schedule_groups.values()):
                    for schedule in list(group.schedules.values()):
                        due = due_at(
                            schedule.schedule_expression, schedule.schedule_expression_timezone
                        )
                        attempts, not_before = self._attempts.get(schedule.arn, (0, now))
                        if due is None or due > now or schedule.state != "ENABLED":
                            continue
                        if not_before <= now:
                            found.append(Due(account, region, schedule, due, attempts))
        return found

    def _fire(self, due: Due) -> bool:
        schedule = due.schedule
        try:
            self._call(due)
        except (AccessRefused, BotoCoreError, ClientError) as wrong:
            _log.warning("schedule %s failed: %s", schedule.name, wrong)
            if not self._given_up(due):
                return False
            self._to_dead_letters(due, wrong)
            self._complete(due)
            return False
        _log.info("schedule %s fired", schedule.name)
        self._complete(due)
        return True

    def _call(self, due: Due) -> None:
        service, operation = universal_target(due.schedule.target["Arn"])
        arguments = json.loads(due.schedule.target.get("Input") or "{}")
        with self._lock:
            asks = rights.asked(due.account, due.region, f"{service}:{operation}", arguments)
            self._check_role(due, asks)
        client = self._client(service, due.region)
        getattr(client, xform_name(operation))(**arguments)

    def _check_role(self, due: Due, asks: Iterable[rights.Ask]) -> None:
        arn = due.schedule.target["RoleArn"]
        role = identity.role_by_arn(due.account, due.region, arn)
        if role is None:
            raise AccessRefused(f"no role {arn}")
        for action, resource, context in asks:
            if not policy.allows(policy.documents_of(role), action, resource, context):
                raise AccessRefused(f"{arn} doesn't allow {action} on {resource}")

    def _given_up(self, due: Due) -> bool:
        retries = due.schedule.target["RetryPolicy"]
        now, attempts = self._now(), due.attempts + 1
        self._attempts[due.schedule.arn] = (attempts, now + _RETRY_AFTER)
        too_old = now - due.due > timedelta(seconds=retries.get("MaximumEventAgeInSeconds", 86400))
        return too_old or attempts > retries.get("MaximumRetryAttempts", 185)

    def _to_dead_letters(self, due: Due, wrong: Exception) -> None:
        queue = due.schedule.target.get("DeadLetterConfig", {}).get("Arn")
        if not queue:
            return
        sqs = self._client("sqs", due.region)
        try:
            with self._lock:
                self._check_sender(due, queue)
            url = sqs.get_queue_url(QueueName=queue.rsplit(":", 1)[-1])["QueueUrl"]
            body = due.schedule.target.get("Input") or "{}"
            sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=_why(due, wrong))
        except (AccessRefused, BotoCoreError, ClientError) as lost:
            _log.warning("dead letter of %s lost: %s", due.schedule.name, lost)

    def _check_sender(self, due: Due, queue: str) -> None:
        """The queue is written to with the schedule's own role, or not at all."""
        arn = due.schedule.target["RoleArn"]
        role = identity.role_by_arn(due.account, due.region, arn)
        documents = policy.documents_of(role) if role else []
        if not policy.allows(documents, "sqs:SendMessage", queue, {}):
            raise AccessRefused(f"{arn} doesn't allow sqs:SendMessage on {queue}")

    def _complete(self, due: Due) -> None:
        """A one-time schedule stays behind, spent, unless it asked to be deleted."""
        schedule: Any = due.schedule
        self._attempts.pop(schedule.arn, None)
        with self._lock:
            backend = scheduler_backends[due.account][due.region]
            group: Any = backend.schedule_groups.get(schedule.group_name)
            if group is None or group.schedules.get(schedule.name) is not schedule:
                return
            if schedule.action_after_completion == "DELETE":
                group.delete_schedule(schedule.name)
            else:
                schedule.state = "DISABLED"


def _why(due: Due, wrong: Exception) -> dict[str, Any]:
    """The attributes that the scheduler sends along with what it couldn't deliver."""
    said = {
        "SCHEDULE_ARN": due.schedule.arn,
        "TARGET_ARN": due.schedule.target["Arn"],
        "ERROR_MESSAGE": str(wrong),
        "RETRY_ATTEMPTS": str(due.attempts),
    }
    return {name: {"DataType": "String", "StringValue": text} for name, text in said.items()}


def clients_of(url: str | None) -> Callable[[str, str], Any]:
    """Clients by service and region, made once each; `url` is the cloud's endpoint."""

    @cache
    def client(service: str, region: str) -> Any:
        keys = {"aws_access_key_id": "scheduler", "aws_secret_access_key": "local"}
        config = Config(retries={"total_max_attempts": 1, "mode": "standard"}, proxies={})
        make: Any = boto3.client  # the service is only known at run time
        return make(service, region_name=region, endpoint_url=url, config=config, **keys)

    return client
