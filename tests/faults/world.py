"""A simulated account, its boxes, and one clock: what a life is lived in.

Time passes only when somebody waits. Then all that is due happens in order: states change,
schedules fire, boxes tick. A controller's wait inside a call that waits is the same wait.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import boto3

from orchestrator.aws.session import Session
from orchestrator.aws.waits import Patience
from tests.faults.clock import Time
from tests.faults.cloud import Instance, ModelCloud, ModelRules
from tests.faults.fault import CONTROLLER, Kind
from tests.faults.machine import Died, Machine
from tests.faults.strikes import Strikes
from tests.faults.trainer import Written
from tests.faults.wire import Fate, Wire

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
AUTOMATION_S = 45.0
ALIVE = ("pending", "running", "stopping", "stopped")


@dataclass
class Enforcers:
    """Which of the enforcers work at all; the teeth of the search switch them off."""

    controller: bool = True
    box: bool = True
    cloud: bool = True


@dataclass
class World:
    """Everything of one life."""

    strikes: Strikes
    enforcers: Enforcers = field(default_factory=Enforcers)
    written: list[Written] = field(default_factory=list)
    deaths: dict[str, tuple[float, str]] = field(default_factory=dict)
    """By instance: true epoch seconds, and why."""
    machines: dict[str, Machine] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    """Promises that were seen broken while the life went on."""
    kind: Callable[..., Machine] = Machine
    """What starts with an instance; the scoreboard lets other software run on it."""

    def __post_init__(self) -> None:
        self.time = Time(self._pass_to)
        self.rules = ModelRules(
            boot_s=BOOT_S,
            shutdown_s=SHUTDOWN_S,
            linger_s=LINGER_S,
            profile_delay_s=PROPAGATION_S,
            role_delay_s=PROPAGATION_S,
            automation_s=AUTOMATION_S,
        )
        self.cloud = ModelCloud(self.time.now, self.rules, account=ACCOUNT, region=REGION)
        self.cloud.on_launch, self.cloud.on_end = self._launched, self._ended
        self.cloud.schedules_fire = self.enforcers.cloud
        self.strikes.world = self
        self._wires: dict[tuple[str, bool], Wire] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="gpurun-life-", dir=_memory())
        self._ticks: dict[str, datetime] = {}
        self._busy = False

    @property
    def folder(self) -> Path:
        """Where this life's files are, in memory where possible."""
        return Path(self._folder.name)

    def box(self, name: str) -> Machine:
        """The newest machine of a box."""
        return next(m for m in reversed(self.machines.values()) if m.name == name)

    def close(self) -> None:
        self._folder.cleanup()

    def session(self) -> Session:
        """A controller's own, as it is made anew by each command."""
        clients: dict[Any, Any] = {}
        fate = Fate()
        for service in SERVICES:
            for fast in (False, True):
                clients[service, REGION, fast] = Wire(
                    self.cloud.client(service),
                    service,
                    CONTROLLER,
                    1 if fast else CONTROLLER_ATTEMPTS,
                    self.strikes,
                    self.time.sleep,
                    fate,
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
        moments = [until, *self._ticks.values(), *self.strikes.moments()]
        changing = self.cloud.next_change()
        if changing is not None:
            moments.append(max(changing, self.time.at + timedelta(seconds=1)))
        return min(moments)

    def _happen(self) -> None:
        self.strikes.at_this_moment()
        self.cloud.settle()
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
        machine = self.kind(
            instance.id,
            instance.user_data,
            self.folder / instance.id,
            true=self.time.monotonic,
            client=self._box_client,
            switch=self._switched,
            note=self.written.append,
        )
        alike = [m for m in self.machines.values() if m.name == machine.name]
        machine.attempt = len(alike) + 1
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
        if not self.enforcers.box:  # what was on it had its end, whatever the machine does
            self.deaths.setdefault(instance_id, (self.time.monotonic(), "powered off in vain"))
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
        machine = self.box(box)
        key = (machine.instance_id, fast)
        if key not in self._wires:
            caller = f"box:{machine.instance_id}"
            self._wires[key] = Wire(
                self.cloud.client("s3", caller=caller),
                "s3",
                box,
                1 if fast else BOX_ATTEMPTS,
                self.strikes,
                lambda _: None,
                Fate(),
            )
        return self._wires[key]


def _memory() -> str | None:
    """A folder in memory, where there is one: lives write many small files."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


_BOTO = boto3.Session(
    aws_access_key_id="simulated", aws_secret_access_key="simulated", region_name=REGION
)
