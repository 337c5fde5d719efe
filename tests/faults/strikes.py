"""How the faults of a life strike: at calls of the controller, at calls of a box, at a moment.

Each strikes once. What it changes in the world stays changed: a box without S3, a wrong clock, a
scheduler that is out of order.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.faults.clock import START, seconds
from tests.faults.fault import AT_BOXES, CONTROLLER, Fault, Kind
from tests.faults.machine import Died, Machine
from tests.faults.wire import lost, refusal

if TYPE_CHECKING:
    from tests.faults.world import World

MINUTE_S, CAPACITY_S, LATE_S, NOTICE_S, CLOCK_S = 60.0, 1200.0, 30.0, 120.0, 7200.0
THROTTLED_TIMES = 5
ALIVE = ("pending", "running", "stopping", "stopped")
_AFTER = (Kind.KILLED_AFTER, Kind.GONE_AFTER, Kind.LOST, Kind.ERROR_AFTER)


def is_read(operation: str) -> bool:
    """Whether a call changes nothing."""
    return operation.startswith(("describe_", "get_", "list_", "head_"))


class ControllerDied(BaseException):
    """SIGKILL: nothing of the controller's own runs after this."""

    def __init__(self, *, gone: bool) -> None:
        super().__init__()
        self.gone = gone


@dataclass(frozen=True)
class Seen:
    """One call of the undisturbed life. Calls of the same signature are the same situation."""

    actor: str
    operation: str
    nth: int
    signature: tuple[object, ...]
    world: tuple[object, ...] = ()
    """What the world is like right before it, in so far as calls made it so: equal is the same."""
    world_after: tuple[object, ...] = ()
    is_tried_again: bool = False
    """By botocore, when its answer is lost or is an error of the service."""
    agent_look: int = 0
    """The how many-th look of its agent a box's call belongs to."""
    asked: Mapping[str, int] = field(default_factory=dict)
    """How often by then anybody had asked for what a fault may change, by the name of that."""


@dataclass
class Strikes:
    """The faults of one life. `struck` are those that really happened."""

    faults: tuple[Fault, ...] = ()
    watch_calls: bool = False
    calls: list[Seen] = field(default_factory=list)
    struck: list[Fault] = field(default_factory=list)
    renewed: bool = True
    refusing: dict[str, float] = field(default_factory=dict)
    """Boxes to which S3 says no, until when (true epoch seconds)."""
    second_up: Callable[[], None] = lambda: None
    second_down: Callable[[], None] = lambda: None
    world: World = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._changes, self._attempts = 0, 1
        self._throttled: Counter[Fault] = Counter()
        self._by_call = {(f.actor, f.operation, f.nth): f for f in self.faults if f.at_s < 0}
        self._timed = sorted((f for f in self.faults if f.at_s >= 0), key=lambda f: f.at_s)
        self._no_room: dict[str, datetime] = {}
        self._taken: dict[str, datetime] = {}

    def no_more(self) -> None:
        """The rest of the life is quiet."""
        self._by_call, self._timed, self.renewed = {}, [], True
        self.world.rules.invisible_s = 0.0

    def moments(self) -> Iterator[datetime]:
        """When something will strike that waits for no call."""
        yield from self._taken.values()
        if self._timed:
            yield START + timedelta(seconds=self._timed[0].at_s)

    def at_this_moment(self) -> None:
        """Strike what is due by now."""
        while self._timed and self._timed[0].at_s <= seconds(self.world.time.at):
            self._strike_anywhere(self._timed.pop(0))
        for instance_id, due in list(self._taken.items()):
            if due <= self.world.time.at:
                del self._taken[instance_id]
                if self.world.cloud.instances[instance_id].state in ALIVE:
                    self.world.cloud.take_spot(instance_id)

    def count(self, actor: str, operation: str, attempts: int) -> int:
        self._attempts = attempts
        self._counts[actor, operation] += 1
        return self._counts[actor, operation]

    def before(self, actor: str, operation: str, nth: int, parameters: dict[str, Any]) -> None:
        if self.watch_calls:
            self.calls.append(self._seen(actor, operation, nth, parameters))
        if actor == CONTROLLER:
            self._before_controller(operation, nth, parameters)
        else:
            self._before_box(actor, operation, nth)

    def after(self, actor: str, operation: str, nth: int, parameters: dict[str, Any]) -> None:
        self._changes += not is_read(operation)
        if self.watch_calls:
            self._mark_effective(actor, operation, nth)
        self._check_clean(actor, operation, parameters)
        fault = self._by_call.get((actor, operation, nth))
        if fault is None or fault in self.struck or fault.kind not in _AFTER:
            return
        self.struck.append(fault)
        match fault.kind:
            case Kind.KILLED_AFTER | Kind.GONE_AFTER:
                raise ControllerDied(gone=fault.kind is Kind.GONE_AFTER)
            case Kind.LOST:
                raise lost(operation)
            case Kind.ERROR_AFTER:
                raise refusal(operation, "InternalError", 500)

    def _before_controller(self, operation: str, nth: int, parameters: dict[str, Any]) -> None:
        if not self.renewed:
            raise refusal(operation, "ExpiredToken")
        wanted = str(parameters.get("InstanceType"))
        if self.world.time.at < self._no_room.get(wanted, START):
            raise refusal(operation, "InsufficientInstanceCapacity", 500)
        fault = self._by_call.get((CONTROLLER, operation, nth))
        if fault is None or fault in self.struck or fault.kind in _AFTER:
            return
        self.struck.append(fault)
        self._strike_call(fault, operation, wanted)

    def _strike_call(self, fault: Fault, operation: str, wanted: str) -> None:
        match fault.kind:
            case Kind.THROTTLED:
                self._throttled[fault] += 1
                if self._throttled[fault] < THROTTLED_TIMES:
                    self.struck.remove(fault)
                raise refusal(operation, "RequestLimitExceeded", 503)
            case Kind.KILLED_BEFORE | Kind.GONE_BEFORE:
                raise ControllerDied(gone=fault.kind is Kind.GONE_BEFORE)
            case Kind.EXPIRED:
                self.renewed = False
                raise refusal(operation, "ExpiredToken")
            case Kind.CAPACITY:
                self._no_room[wanted] = self.world.time.at + timedelta(seconds=CAPACITY_S)
                raise refusal(operation, "InsufficientInstanceCapacity", 500)
            case Kind.INVISIBLE:
                self.world.rules.invisible_s = LATE_S
            case Kind.SECOND_UP:
                self.second_up()
            case Kind.SECOND_DOWN:
                self.second_down()

    def _before_box(self, box: str, operation: str, nth: int) -> None:
        fault = self._by_call.get((box, operation, nth))
        machine = self.world.box(box)
        if fault is not None and fault not in self.struck and fault.kind in AT_BOXES:
            self.struck.append(fault)
            self._strike_box(machine, fault.kind)
        if self.refusing.get(machine.instance_id, 0.0) > self.world.time.monotonic():
            raise refusal(operation, "ServiceUnavailable", 503)

    def _mark_effective(self, actor: str, operation: str, nth: int) -> None:
        """A call that had its effect is another situation than one that was refused."""
        for at in range(len(self.calls) - 1, -1, -1):
            seen = self.calls[at]
            if (seen.actor, seen.operation, seen.nth) == (actor, operation, nth):
                effective = (*seen.signature, True)
                self.calls[at] = replace(seen, signature=effective, world_after=self._world())
                return

    def _check_clean(self, actor: str, operation: str, parameters: dict[str, Any]) -> None:
        """Whoever writes that a run is clean has looked, and nothing is there."""
        if actor != CONTROLLER or operation != "put_object" or "/events/" not in parameters["Key"]:
            return
        if b'"kind":"clean"' in parameters["Body"]:
            run = parameters["Key"].split("/")[1]
            left = self.world.cloud.tagged(run)
            self.world.broken += [
                f"leak: {run} was called clean while {item} was there" for item in left
            ]

    def _strike_box(self, machine: Machine, kind: Kind) -> None:
        match kind:
            case Kind.BOX_LOST | Kind.BOX_WEDGED:
                raise Died(kind)
            case Kind.TRAINER_KILLED:
                machine.kill_trainers()
            case Kind.S3_MINUTE:
                self.refusing[machine.instance_id] = self.world.time.monotonic() + MINUTE_S
            case Kind.S3_EVER:
                self.refusing[machine.instance_id] = float("inf")
            case Kind.CLOCK_AHEAD:
                machine.skew_s = CLOCK_S
            case Kind.CLOCK_BEHIND:
                machine.skew_s = -CLOCK_S
            case Kind.SPOT_TAKEN:
                machine.taken_at = self.world.time.monotonic() + NOTICE_S
                self._taken[machine.instance_id] = self.world.time.at + timedelta(seconds=NOTICE_S)
            case Kind.DISK_FULL:
                machine.disk_full = True

    def _strike_anywhere(self, fault: Fault) -> None:
        self.struck.append(fault)
        if fault.kind is Kind.SCHEDULES_OUT:
            self.world.cloud.schedules_fire = False
        if fault.kind is Kind.SCHEDULES_GONE:
            client = self.world.cloud.client("scheduler", caller="person")
            for page in client.get_paginator("list_schedules").paginate(GroupName="default"):
                for entry in page["Schedules"]:
                    with contextlib.suppress(Exception):
                        client.delete_schedule(Name=entry["Name"], GroupName="default")

    def _seen(self, actor: str, operation: str, nth: int, parameters: dict[str, Any]) -> Seen:
        return Seen(
            actor,
            operation,
            nth,
            self._signature(actor, operation, parameters),
            world=self._world(),
            world_after=self._world(),
            is_tried_again=self._attempts > 1,
            agent_look=0 if actor == CONTROLLER else self.world.box(actor).looks,
            asked=self._asked(actor),
        )

    def _asked(self, actor: str) -> dict[str, int]:
        if actor == CONTROLLER:
            return {"late": self.world.cloud.dated}
        return {**self.world.box(actor).asked, "written": len(self.world.written)}

    def _world(self) -> tuple[object, ...]:
        return self.world.time.at, self._changes

    def _signature(
        self, actor: str, operation: str, parameters: dict[str, Any]
    ) -> tuple[object, ...]:
        """The situation in which a call is made: what is asked, and how far all is by then."""
        states = tuple(sorted(i.state for i in self.world.cloud.instances.values()))
        key = str(
            parameters.get("Key") or parameters.get("Prefix") or parameters.get("Name") or ""
        )
        shape = "".join("0" if char.isdigit() else char for char in key)
        if "/blobs/" in shape:
            shape = shape[: shape.index("/blobs/") + 7]
        if actor == CONTROLLER:
            return (actor, operation, shape, states, self._counts[CONTROLLER, "put_object"])
        trainers = [
            t.progress for m in self.world.machines.values() if m.name == actor for t in m.trainers
        ]
        return (actor, operation, shape, states, *trainers)
