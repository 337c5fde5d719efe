"""A simulated account, its boxes, and one clock: what a life is lived in.

Time passes only when somebody waits. Then all that is due happens in order: states change, schedules
fire, boxes tick. A controller's wait inside a call that waits is the same wait.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import boto3

from orchestrator.aws.session import Session
from orchestrator.aws.waits import Patience
from tests.faults.clock import START, Time, seconds
from tests.faults.cloud import Instance, ModelCloud, ModelRules
from tests.faults.fault import AT_BOXES, CONTROLLER, KILLS, Fault, Kind
from tests.faults.machine import Died, Machine
from tests.faults.trainer import Written
from tests.faults.wire import Wire, lost, refusal

ACCOUNT, REGION = "123456789012", "us-east-1"
SERVICES = (
    "ec2",
    "iam",
    "s3",
    "scheduler",
    "ssm",
    "sqs",
    "sts",
    "service-quotas",
    "secretsmanager",
)
CONTROLLER_ATTEMPTS, BOX_ATTEMPTS = 6, 4
BOOT_S, SHUTDOWN_S, LINGER_S, PROPAGATION_S = 40.0, 30.0, 45.0, 9.0
MINUTE_S, CAPACITY_S, LATE_S = 60.0, 1200.0, 30.0
CLOCK_S = 7200.0
NOTICE_S = 120.0
ALIVE = ("pending", "running", "stopping", "stopped")


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


@dataclass
class Enforcers:
    """Which of the enforcers work at all; the teeth of the search switch them off."""

    controller: bool = True
    box: bool = True
    cloud: bool = True


@dataclass
class World:
    """Everything of one life. `struck` are the faults that really happened."""

    faults: tuple[Fault, ...] = ()
    enforcers: Enforcers = field(default_factory=Enforcers)
    watch_calls: bool = False
    calls: list[Seen] = field(default_factory=list)
    struck: list[Fault] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    deaths: dict[str, tuple[float, str]] = field(default_factory=dict)
    """By instance: true epoch seconds, and why."""
    machines: dict[str, Machine] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    """Promises that were seen broken while the life went on."""
    renewed: bool = True
    refusing: dict[str, float] = field(default_factory=dict)
    """Boxes to which S3 says no, until when (true epoch seconds)."""

    def __post_init__(self) -> None:
        self.time = Time(self._pass_to)
        self.rules = ModelRules(
            boot_s=BOOT_S,
            shutdown_s=SHUTDOWN_S,
            linger_s=LINGER_S,
            profile_delay_s=PROPAGATION_S,
            role_delay_s=PROPAGATION_S,
        )
        self.cloud = ModelCloud(self.time.now, self.rules, account=ACCOUNT, region=REGION)
        self.cloud.on_launch, self.cloud.on_end = self._launched, self._ended
        self.cloud.schedules_fire = self.enforcers.cloud
        self._counts: Counter[tuple[str, str]] = Counter()
        self._wires: dict[tuple[str, bool], Wire] = {}
        self._by_call = {(f.actor, f.operation, f.nth): f for f in self.faults if f.at_s < 0}
        self._timed = sorted((f for f in self.faults if f.at_s >= 0), key=lambda f: f.at_s)
        self._folder = tempfile.TemporaryDirectory(prefix="gpurun-life-", dir=_memory())
        self._ticks: dict[str, datetime] = {}
        self._taken: dict[str, datetime] = {}
        self._busy = False
        self._no_room: dict[str, datetime] = {}
        self.second_up: Callable[[], None] = lambda: None
        self.second_down: Callable[[], None] = lambda: None
        self._throttled: Counter[Fault] = Counter()

    def close(self) -> None:
        self._folder.cleanup()

    def session(self) -> Session:
        """A controller's own, as it is made anew by each command."""
        clients: dict[Any, Any] = {}
        for service in SERVICES:
            for fast in (False, True):
                clients[service, REGION, fast] = Wire(
                    self.cloud.client(service),
                    service,
                    CONTROLLER,
                    1 if fast else CONTROLLER_ATTEMPTS,
                    self,
                    self._count,
                    self.time.sleep,
                )
        patience = Patience(sleep=self.time.sleep, clock=self.time.monotonic)
        boto = _BOTO
        return Session("aws", REGION, ACCOUNT, patience=patience, boto=boto, clients=clients)

    # --- time -----------------------------------------------------------------------------

    def _pass_to(self, until: datetime) -> None:
        if self._busy:  # a wait of a box or of the cloud inside a step: time is not theirs to pass
            return
        self._busy = True
        try:
            while self.time.at < until:
                self.time.at = min(until, max(self.time.at, self._next(until)))
                self._happen()
        finally:
            self._busy = False

    def _next(self, until: datetime) -> datetime:
        moments = [until, *self._ticks.values(), *self._taken.values()]
        changing = self.cloud.next_change()
        if changing is not None:
            moments.append(max(changing, self.time.at + timedelta(seconds=1)))
        if self._timed:
            moments.append(START + timedelta(seconds=self._timed[0].at_s))
        return min(moments)

    def _happen(self) -> None:
        while self._timed and self._timed[0].at_s <= seconds(self.time.at):
            self._strike_anywhere(self._timed.pop(0))
        self.cloud.settle()
        for instance_id, due in list(self._taken.items()):
            if due <= self.time.at:
                del self._taken[instance_id]
                if self.cloud.instances[instance_id].state in ALIVE:
                    self.cloud.take_spot(instance_id)
        for instance_id, due in list(self._ticks.items()):
            if due <= self.time.at:
                self._tick(self.machines[instance_id])

    def _tick(self, machine: Machine) -> None:
        instance = self.cloud.instances[machine.instance_id]
        self._ticks[machine.instance_id] = self.time.at + timedelta(seconds=machine.tick_s)
        if machine.booted_at is None and instance.state == "running":
            machine.boot()
        try:
            machine.step()
        except Died as died:
            self._die(machine, str(died))
        if machine.wedged or machine.off:
            self._ticks.pop(machine.instance_id, None)

    # --- instances ------------------------------------------------------------------------

    def _launched(self, instance: Instance) -> None:
        machine = Machine(
            instance.id,
            instance.user_data,
            Path(self._folder.name) / instance.id,
            true=self.time.monotonic,
            client=self._box_client,
            switch=self._switched,
            note=self.written.append,
        )
        alike = [m for m in self.machines.values() if m.name == machine.name]
        if any(self.cloud.instances[m.instance_id].state in ALIVE for m in alike):
            self.broken.append(f"money: two instances of box {machine.name} at the same time")
        self.machines[instance.id] = machine
        self._ticks[instance.id] = self.time.at + timedelta(seconds=BOOT_S)

    def _ended(self, instance: Instance) -> None:
        machine = self.machines[instance.id]
        machine.off = True
        self._ticks.pop(instance.id, None)
        self.deaths.setdefault(instance.id, (self.time.monotonic(), instance.reason))

    def _switched(self, instance_id: str, command: str) -> None:
        """A box called its power-off command; `halt` stops the machine and not the bill."""
        machine = self.machines[instance_id]
        if not self.enforcers.box:
            return
        if command in ("poweroff", "shutdown"):
            self.cloud.power_off(instance_id)
        else:
            machine.wedged = True
            self.deaths.setdefault(instance_id, (self.time.monotonic(), "halted"))

    def _die(self, machine: Machine, how: str) -> None:
        machine.wedged = True
        self.deaths.setdefault(machine.instance_id, (self.time.monotonic(), how))
        if how == Kind.BOX_LOST:
            self.cloud.lose(machine.instance_id)

    def _box_client(self, box: str, fast: bool) -> Wire:
        machine = next(m for m in reversed(self.machines.values()) if m.name == box)
        key = (machine.instance_id, fast)
        if key not in self._wires:
            caller = f"box:{machine.instance_id}"
            self._wires[key] = Wire(
                self.cloud.client("s3", caller=caller),
                "s3",
                box,
                1 if fast else BOX_ATTEMPTS,
                self,
                self._count,
                lambda _: None,
            )
        return self._wires[key]

    # --- faults ---------------------------------------------------------------------------

    def _count(self, actor: str, operation: str) -> int:
        self._counts[actor, operation] += 1
        return self._counts[actor, operation]

    def before(self, actor: str, operation: str, nth: int, parameters: dict[str, Any]) -> None:
        if self.watch_calls:
            seen = Seen(actor, operation, nth, self._signature(actor, operation, parameters))
            self.calls.append(seen)
        if actor == CONTROLLER:
            self._before_controller(operation, nth, parameters)
        else:
            self._before_box(actor, operation, nth)

    def after(self, actor: str, operation: str, nth: int, parameters: dict[str, Any]) -> None:
        if self.watch_calls:
            self._mark_effective(actor, operation, nth)
        self._check_clean(actor, operation, parameters)
        fault = self._by_call.get((actor, operation, nth))
        if fault is None or fault in self.struck:
            return
        if fault.kind in (Kind.KILLED_AFTER, Kind.GONE_AFTER):
            self.struck.append(fault)
            raise ControllerDied(gone=fault.kind is Kind.GONE_AFTER)
        if fault.kind is Kind.LOST:
            self.struck.append(fault)
            raise lost(operation)
        if fault.kind is Kind.ERROR_AFTER:
            self.struck.append(fault)
            raise refusal(operation, "InternalError", 500)

    def _before_controller(self, operation: str, nth: int, parameters: dict[str, Any]) -> None:
        if not self.renewed:
            raise refusal(operation, "ExpiredToken")
        wanted = str(parameters.get("InstanceType"))
        if self.time.at < self._no_room.get(wanted, START):
            raise refusal(operation, "InsufficientInstanceCapacity", 500)
        fault = self._by_call.get((CONTROLLER, operation, nth))
        if fault is None or fault in self.struck:
            return
        if fault.kind is Kind.THROTTLED:
            self._throttled[fault] += 1
            if self._throttled[fault] == 5:
                self.struck.append(fault)
            raise refusal(operation, "RequestLimitExceeded", 503)
        if fault.kind in (Kind.KILLED_BEFORE, Kind.GONE_BEFORE):
            self.struck.append(fault)
            raise ControllerDied(gone=fault.kind is Kind.GONE_BEFORE)
        if fault.kind is Kind.EXPIRED:
            self.struck.append(fault)
            self.renewed = False
            raise refusal(operation, "ExpiredToken")
        if fault.kind is Kind.CAPACITY:
            self.struck.append(fault)
            self._no_room[wanted] = self.time.at + timedelta(seconds=CAPACITY_S)
            raise refusal(operation, "InsufficientInstanceCapacity", 500)
        if fault.kind is Kind.INVISIBLE:
            self.struck.append(fault)
            self.rules.invisible_s = LATE_S
        if fault.kind in (Kind.SECOND_UP, Kind.SECOND_DOWN):
            self.struck.append(fault)
            (self.second_up if fault.kind is Kind.SECOND_UP else self.second_down)()

    def _before_box(self, box: str, operation: str, nth: int) -> None:
        fault = self._by_call.get((box, operation, nth))
        machine = next(m for m in reversed(self.machines.values()) if m.name == box)
        if fault is not None and fault not in self.struck and fault.kind in AT_BOXES:
            self.struck.append(fault)
            self._strike_box(machine, fault.kind)
        if self.refusing.get(machine.instance_id, 0.0) > self.time.monotonic():
            raise refusal(operation, "ServiceUnavailable", 503)

    def _mark_effective(self, actor: str, operation: str, nth: int) -> None:
        """A call that had its effect is another situation than one that was refused."""
        for at in range(len(self.calls) - 1, -1, -1):
            seen = self.calls[at]
            if (seen.actor, seen.operation, seen.nth) == (actor, operation, nth):
                self.calls[at] = replace(seen, signature=(*seen.signature, True))
                return

    def _check_clean(self, actor: str, operation: str, parameters: dict[str, Any]) -> None:
        """Whoever writes that a run is clean has looked, and nothing is there."""
        if actor != CONTROLLER or operation != "put_object" or "/events/" not in parameters["Key"]:
            return
        if b'"kind":"clean"' in parameters["Body"]:
            run = parameters["Key"].split("/")[1]
            left = self.cloud.tagged(run)
            self.broken += [
                f"leak: {run} was called clean while {item} was there" for item in left
            ]

    def _strike_box(self, machine: Machine, kind: Kind) -> None:
        match kind:
            case Kind.BOX_LOST | Kind.BOX_WEDGED:
                raise Died(kind)
            case Kind.TRAINER_KILLED:
                machine.kill_trainers()
            case Kind.S3_MINUTE:
                self.refusing[machine.instance_id] = self.time.monotonic() + MINUTE_S
            case Kind.S3_EVER:
                self.refusing[machine.instance_id] = float("inf")
            case Kind.CLOCK_AHEAD:
                machine.skew_s = CLOCK_S
            case Kind.CLOCK_BEHIND:
                machine.skew_s = -CLOCK_S
            case Kind.SPOT_TAKEN:
                machine.taken_at = self.time.monotonic() + NOTICE_S
                self._taken[machine.instance_id] = self.time.at + timedelta(seconds=NOTICE_S)
            case Kind.DISK_FULL:
                machine.disk_full = True

    def _strike_anywhere(self, fault: Fault) -> None:
        self.struck.append(fault)
        if fault.kind is Kind.SCHEDULES_OUT:
            self.cloud.schedules_fire = False
        if fault.kind is Kind.SCHEDULES_GONE:
            client = self.cloud.client("scheduler", caller="person")
            for page in client.get_paginator("list_schedules").paginate(GroupName="default"):
                for entry in page["Schedules"]:
                    with contextlib.suppress(Exception):
                        client.delete_schedule(Name=entry["Name"], GroupName="default")

    def _signature(
        self, actor: str, operation: str, parameters: dict[str, Any]
    ) -> tuple[object, ...]:
        """The situation in which a call is made: what is asked, and how far all is by then."""
        states = tuple(sorted(i.state for i in self.cloud.instances.values()))
        key = str(
            parameters.get("Key") or parameters.get("Prefix") or parameters.get("Name") or ""
        )
        shape = "".join("0" if char.isdigit() else char for char in key)
        if "/blobs/" in shape:
            shape = shape[: shape.index("/blobs/") + 7]
        if actor == CONTROLLER:
            return (actor, operation, shape, states, self._counts[CONTROLLER, "put_object"])
        trainers = [
            t.progress for m in self.machines.values() if m.name == actor for t in m.trainers
        ]
        return (actor, operation, shape, states, *trainers)


def kills(faults: tuple[Fault, ...]) -> bool:
    """Whether the controller dies in it."""
    return any(fault.kind in KILLS for fault in faults)


def _memory() -> str | None:
    """A folder in memory, where there is one: lives write many small files."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


_BOTO = boto3.Session(
    aws_access_key_id="simulated", aws_secret_access_key="simulated", region_name=REGION
)
