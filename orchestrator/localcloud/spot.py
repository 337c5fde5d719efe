"""Spot instances that are taken away: a notice in their metadata, two minutes later the end.

Times and words follow the EC2 User Guide, "Spot Instance interruption notices".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from threading import RLock
from typing import Any

from moto.ec2.models import ec2_backends

NOTICE_S = 120.0
REASON = ("Server.SpotInstanceTermination", "Server.SpotInstanceTermination: Spot termination")
_STAMP = "%Y-%m-%dT%H:%M:%SZ"


class NoSuchSpot(Exception):
    """No spot instance of that id is running."""


class SpotNotices:
    """Gives notices, and takes the instances when it is asked to and their time has come."""

    def __init__(self, lock: RLock, now: Callable[[], datetime]) -> None:
        self._lock, self._now = lock, now

    def give(self, instance_id: str, seconds: float = NOTICE_S) -> datetime:
        """When the instance will be taken. A second notice changes nothing. Raises NoSuchSpot."""
        with self._lock:
            for instance in _running_spots():
                if instance.id == instance_id:
                    if taken_at(instance) is None:
                        instance.local_taken_at = self._now() + timedelta(seconds=seconds)
                    return instance.local_taken_at  # type: ignore[no-any-return]
        raise NoSuchSpot(f"no spot instance {instance_id} is running")

    def take_due(self) -> list[str]:
        """Ids of the instances that were ended now."""
        with self._lock:
            due = [each for each in _running_spots() if self._is_due(each)]
            for instance in due:
                instance.terminate()
                instance.state_reason.code, instance.state_reason.message = REASON
        return [instance.id for instance in due]

    def _is_due(self, instance: Any) -> bool:
        at = taken_at(instance)
        return at is not None and at <= self._now()


def taken_at(instance: Any) -> datetime | None:
    """When the instance will be taken away, if it was given notice."""
    return getattr(instance, "local_taken_at", None)


def notice_of(instance: Any) -> dict[str, str]:
    """What its metadata says of that, by path; nothing until it was given notice."""
    at = taken_at(instance)
    if at is None:
        return {}
    time = at.strftime(_STAMP)
    action = json.dumps({"action": "terminate", "time": time})
    return {"spot/instance-action": action, "spot/termination-time": time}


def _running_spots() -> Iterator[Any]:
    for by_region in list(ec2_backends.values()):
        for backend in list(by_region.values()):
            for reservation in list(backend.reservations.values()):
                for instance in reservation.instances:
                    if instance.lifecycle == "spot" and instance._state.name in (
                        "pending",
                        "running",
                    ):
                        yield instance
