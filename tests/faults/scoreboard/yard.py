"""What the modelled policies have in common: an account, a launch, a box with the job on it.

They know nothing of ours. The account was set up beforehand (a bucket, an instance profile that
may write to it and end instances), boxes go into the default VPC, and the job starts with the box.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from botocore.exceptions import ClientError, ConnectionClosedError

from orchestrator.box.process import Place
from orchestrator.plan import Plan
from tests.faults.clock import START
from tests.faults.cloud import Instance
from tests.faults.cloud.ec2_places import images_of
from tests.faults.fault import CONTROLLER
from tests.faults.machine import Machine
from tests.faults.scoreboard.scenes import BOX, JOB, SceneTrainer, Staged
from tests.faults.trainer import Written
from tests.faults.wire import Wire
from tests.faults.world import ALIVE, BOX_ATTEMPTS, CONTROLLER_ATTEMPTS, REGION, World

RUN, BUCKET, PROFILE = "board", "somebodys-results", "somebodys-box"
REFUSED = (ClientError, ConnectionClosedError)
AGAIN_S, TRIES = 60.0, 12
_TRUST = {"Statement": {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}}}
_MAY = {"Statement": {"Effect": "Allow", "Action": ["s3:*", "ec2:*"], "Resource": "*"}}


class OnBox(Protocol):
    """A policy's part on the box."""

    def on_boot(self, box: Computer) -> None:
        """Right before the job starts."""

    def on_tick(self, box: Computer) -> None:
        """Every ten seconds."""


class Computer(Machine):
    """A box without our software: the job, and what the policy put beside it."""

    def __init__(
        self, policy: OnBox, *args: Any, note: Callable[[Written], None], **more: Any
    ) -> None:
        self._policy = policy
        # Logs and metrics say nothing of what could be gone on from, and are long after a night.
        super().__init__(
            *args, note=lambda w: note(w) if w.name.startswith("out/") else None, **more
        )
        self.sent: dict[str, bytes] = {}
        """What a sync of the policy's has brought away."""
        self.seen = 0
        self.waits_since: float | None = None

    def _read(self, user_data: str) -> None:
        self.name, self._steps = BOX, int(user_data)

    @property
    def place(self) -> Place:
        return Place(self.folder, JOB)

    @property
    def job(self) -> SceneTrainer:
        newest = self.trainers[-1]
        assert isinstance(newest, SceneTrainer)
        return newest

    @property
    def lived_s(self) -> float:
        return self._true() - (self.booted_at or 0.0)

    @property
    def answers(self) -> bool:
        """Over SSH, say."""
        return self.booted_at is not None and not (self.wedged or self.off)

    def files(self) -> dict[str, bytes]:
        """What the job has written and not deleted, by the names that its files have."""
        return dict(self.job.disk) if self.trainers else {}

    def step(self) -> None:
        if not self.answers:
            return
        if not self.trainers:
            self._policy.on_boot(self)
            self.start_trainer(self.place, [f"sim {self._steps}"], {"GPURUN_JOB": JOB})
        for trainer in self.trainers:
            trainer.advance()
        self._policy.on_tick(self)

    def waited(self, seconds: float) -> bool:
        """Whether this was first asked so long ago: what a policy waits for at its end."""
        if self.waits_since is None:
            self.waits_since = self._true()
        return self._true() - self.waits_since >= seconds


@dataclass
class Yard:
    """One life of a policy."""

    world: World
    staged: Staged
    plan: Plan
    known: list[str] = field(default_factory=list)
    """Instances whose ids the person's side was told."""
    fetched: dict[str, bytes] = field(default_factory=dict)
    """What a person copied by hand."""
    _asked: int = 0

    def __post_init__(self) -> None:
        iam = self.world.cloud.client("iam", caller="person")
        iam.create_role(RoleName=PROFILE, AssumeRolePolicyDocument=json.dumps(_TRUST))
        iam.put_role_policy(RoleName=PROFILE, PolicyName="may", PolicyDocument=json.dumps(_MAY))
        iam.create_instance_profile(InstanceProfileName=PROFILE)
        iam.add_role_to_instance_profile(InstanceProfileName=PROFILE, RoleName=PROFILE)
        self.world.cloud.client("s3", caller="person").create_bucket(Bucket=BUCKET)
        self.world.rules.profile_delay_s = 0.0
        self._ec2 = self._wire("ec2", CONTROLLER)

    # --- the person's side ----------------------------------------------------------------

    def sleep_until_s(self, seconds: float) -> None:
        """Since the launch was asked for."""
        self.world.time.sleep(seconds - (self.world.time.at - START).total_seconds())

    def patiently(self, ask: Callable[[], str]) -> str:
        """The command is typed again a minute after each failure."""
        for _ in range(TRIES):
            try:
                return ask()
            except REFUSED:
                self.world.time.sleep(AGAIN_S)
        raise AssertionError("the person gave up, which no scene is about")

    def launch(self, shutdown: str = "stop", token: str = "") -> str:
        """One call of RunInstances; botocore makes a token for it, but a new one per call."""
        self._asked += 1
        tags = [{"Key": "gpurun:run", "Value": RUN}, {"Key": "gpurun:box", "Value": BOX}]
        asked: dict[str, Any] = {
            "ImageId": next(iter(images_of(REGION))),
            "InstanceType": self.plan.boxes[0].instance,
            "MinCount": 1,
            "MaxCount": 1,
            "ClientToken": token or f"botocore-{self._asked}",
            "InstanceInitiatedShutdownBehavior": shutdown,
            "IamInstanceProfile": {"Name": PROFILE},
            "UserData": str(self.staged.scene.steps),
            "NetworkInterfaces": [{"DeviceIndex": 0, "AssociatePublicIpAddress": True}],
            "BlockDeviceMappings": [
                {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": self.plan.boxes[0].disk_gb}}
            ],
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")
            ],
        }
        if self.staged.scene.spot:
            asked["InstanceMarketOptions"] = {"MarketType": "spot"}
        made = str(self._ec2.run_instances(**asked)["Instances"][0]["InstanceId"])
        self.known.append(made)
        return made

    def find(self) -> str | None:
        """An instance with the run's tag that lives."""
        pages = self._ec2.get_paginator("describe_instances").paginate(
            Filters=[
                {"Name": "tag:gpurun:run", "Values": [RUN]},
                {"Name": "instance-state-name", "Values": list(ALIVE)},
            ]
        )
        found = [i["InstanceId"] for p in pages for r in p["Reservations"] for i in r["Instances"]]
        return str(found[0]) if found else None

    def state(self, instance_id: str) -> str:
        answer = self._ec2.describe_instances(InstanceIds=[instance_id])
        return str(answer["Reservations"][0]["Instances"][0]["State"]["Name"])

    def end(self, instance_id: str) -> None:
        self._ec2.terminate_instances(InstanceIds=[instance_id])

    # --- the box's side -------------------------------------------------------------------

    def end_itself(self, box: Machine) -> bool:
        """The box calls EC2 with its role, or with the person's credentials."""
        ec2 = self._wire("ec2", f"box:{box.instance_id}")
        try:
            ec2.terminate_instances(InstanceIds=[box.instance_id])
        except REFUSED:
            return False
        return True

    def computer(self, instance_id: str) -> Computer:
        machine = self.world.machines[instance_id]
        assert isinstance(machine, Computer)
        return machine

    def computers(self) -> list[Computer]:
        return [self.computer(name) for name in self.world.machines]

    def in_bucket(self) -> dict[str, bytes]:
        held = self.world.cloud.objects(BUCKET)
        return {key: held[key] for key in held}

    def now(self) -> datetime:
        return self.world.time.at

    def _wire(self, service: str, caller: str) -> Wire:
        is_person = caller == CONTROLLER
        return Wire(
            self.world.cloud.client(service, caller=caller),
            service,
            CONTROLLER if is_person else BOX,
            CONTROLLER_ATTEMPTS if is_person else BOX_ATTEMPTS,
            self.staged,
            self.world.time.sleep if is_person else lambda _: None,
        )


def on_end(world: World, seen: Callable[[Instance], None]) -> None:
    """Be told of each instance that ends, beside the world itself."""
    first = world.cloud.on_end
    assert first is not None

    def both(instance: Instance) -> None:
        first(instance)
        seen(instance)

    world.cloud.on_end = both
