"""The model's account from outside: clients to call it, hooks to disturb it, and what is left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

from orchestrator.catalog import load_catalog
from tests.faults.cloud import life
from tests.faults.cloud.account import Account
from tests.faults.cloud.buckets import BucketState, Objects, stored
from tests.faults.cloud.client import Call, Client, Hooks
from tests.faults.cloud.ec2 import Ec2
from tests.faults.cloud.iam import Iam
from tests.faults.cloud.instance import BROKEN, BY_ITSELF, BY_SPOT, Instance
from tests.faults.cloud.leftover import drop, left
from tests.faults.cloud.s3 import S3
from tests.faults.cloud.scheduler import Scheduler
from tests.faults.cloud.secrets import Quotas, Secrets, Sts
from tests.faults.cloud.service import Service
from tests.faults.cloud.settings import ModelRules
from tests.faults.cloud.sqs import Sqs
from tests.faults.cloud.ssm import Ssm
from tests.faults.cloud.timeline import Timeline

_SERVICES: dict[str, type[Service]] = {
    "ec2": Ec2,
    "iam": Iam,
    "s3": S3,
    "scheduler": Scheduler,
    "secretsmanager": Secrets,
    "service-quotas": Quotas,
    "sqs": Sqs,
    "ssm": Ssm,
    "sts": Sts,
}
_BY_THE_HOUR = ("instance", "volume", "elastic-ip")


class ModelCloud:
    """One account in memory. Time is the caller's; nothing happens but at calls and `settle`.

    `before` and `after` see the calls of clients, not what the scheduler does by itself.
    """

    def __init__(
        self,
        now: Callable[[], datetime],
        rules: ModelRules | None = None,
        *,
        account: str = "123456789012",
        region: str = "us-east-1",
    ) -> None:
        self.rules = rules or ModelRules()
        self._timeline = Timeline(now)
        self._account = Account(account, region, self._timeline, self.rules, load_catalog())
        self._hooks = Hooks()
        self._lock = threading.RLock()
        self.instances: dict[str, Instance] = self._account.instances
        """All there ever were."""
        self.buckets: dict[str, BucketState] = self._account.buckets
        self.spot_prices = self._account.spot_prices
        self.meter = self._account.meter

    @property
    def before(self) -> Callable[[Call], None] | None:
        return self._hooks.before

    @before.setter
    def before(self, hook: Callable[[Call], None] | None) -> None:
        self._hooks.before = hook

    @property
    def after(self) -> Callable[[Call], None] | None:
        return self._hooks.after

    @after.setter
    def after(self, hook: Callable[[Call], None] | None) -> None:
        self._hooks.after = hook

    @property
    def on_launch(self) -> Callable[[Instance], None] | None:
        return self._account.on_launch

    @on_launch.setter
    def on_launch(self, hook: Callable[[Instance], None] | None) -> None:
        self._account.on_launch = hook

    @property
    def on_end(self) -> Callable[[Instance], None] | None:
        return self._account.on_end

    @on_end.setter
    def on_end(self, hook: Callable[[Instance], None] | None) -> None:
        self._account.on_end = hook

    @property
    def dated(self) -> int:
        """How often it was asked from when on a new thing shows."""
        return self._account.dated

    @property
    def schedules_fire(self) -> bool:
        return self._account.schedules_fire

    @schedules_fire.setter
    def schedules_fire(self, fire: bool) -> None:
        """Back again, the scheduler does what it missed."""
        self._account.schedules_fire = fire
        if fire:
            missed, self._account.stalled = self._account.stalled, []
            for act in missed:
                act()

    def client(
        self, service: str, *, caller: str = "controller", region: str | None = None
    ) -> Any:
        """A new client; `caller` is `box:<instance id>` for what a box does."""
        where = region or self._account.home
        operations = _SERVICES[service](self._account, where, caller)
        return Client(self._account, self._hooks, self._lock, service, operations, where, caller)

    def settle(self) -> None:
        """Let happen what time has done up to now."""
        with self._lock:
            self._timeline.settle()

    def next_change(self) -> datetime | None:
        return self._timeline.next()

    def power_off(self, instance_id: str) -> None:
        """The OS of the box powered off; nothing if it isn't pending or running."""
        instance = self.instances[instance_id]
        if instance.state not in ("pending", "running"):
            return
        act = life.stop if instance.shutdown_behavior == "stop" else life.end
        act(self._account, instance, BY_ITSELF)

    def take_spot(self, instance_id: str) -> None:
        """AWS takes a spot box; raises ValueError for another one."""
        instance = self.instances[instance_id]
        if not instance.spot:
            raise ValueError(f"{instance_id} isn't a spot instance")
        life.end(self._account, instance, BY_SPOT)

    def lose(self, instance_id: str) -> None:
        """The machine under the box fails, and EC2 ends the instance."""
        life.end(self._account, self.instances[instance_id], BROKEN)

    def objects(self, bucket: str) -> Objects:
        """The bucket as a dictionary to read and to spoil."""
        return Objects(self._account, self.buckets[bucket])

    def delete_bucket(self, name: str) -> None:
        """With everything in it, as its owner might."""
        del self.buckets[name]

    def add_bucket(self, name: str, *, owner: str, region: str = "us-east-1") -> None:
        """A bucket of somebody else's."""
        self.buckets[name] = BucketState(name, owner, region, self._timeline.time())

    def drop(self, run: str, kind: str, name: str = "") -> None:
        """Delete the run's things of a kind whose names end so, whatever holds them.

        Kinds are those that `tagged` tells; instances end as by a call, and take their time.
        """
        drop(self._account, run, kind, name)

    def bill(self, run: str) -> Decimal:
        """USD so far."""
        return Decimal(str(self.meter.bill(run, stored(self._account))["total_usd"]))

    def bill_lines(self, run: str) -> list[dict[str, str]]:
        lines: Any = self.meter.bill(run, stored(self._account))["items"]
        return list(lines)

    def tagged(self, run: str) -> list[str]:
        """What still carries the run's tag or name; no terminated instance, nothing in S3."""
        self.settle()
        return [f"{each.kind} {each.name}" for each in left(self._account, run)]

    def billable(self, run: str) -> list[str]:
        """What of the run still costs by the hour."""
        self.settle()
        return [f"{e.kind} {e.name}" for e in left(self._account, run) if e.kind in _BY_THE_HOUR]


def operations_of(service: str) -> set[str]:
    """What the model of a service can be asked, by boto3's names."""
    return {name for name in dir(_SERVICES[service]) if not name.startswith("_")}
