"""All that the model's account holds, by region, and how new things get their ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.catalog import Catalog
from orchestrator.localcloud.meter import Meter
from tests.faults.cloud import things
from tests.faults.cloud.instance import Instance
from tests.faults.cloud.refusal import not_found
from tests.faults.cloud.settings import ModelRules
from tests.faults.cloud.timeline import Timeline

if TYPE_CHECKING:
    from tests.faults.cloud.buckets import BucketState
    from tests.faults.cloud.iam import Profile, Role
    from tests.faults.cloud.scheduler import Schedule
    from tests.faults.cloud.secrets import Secret
    from tests.faults.cloud.sqs import Queue
    from tests.faults.cloud.ssm import Parameter

T = TypeVar("T", bound=things.Thing)

_SCRAMBLE, _MASK = 0x9E3779B97F4A7C15F, (1 << 68) - 1


@dataclass
class Region:
    """What lives in one region."""

    name: str
    vpcs: dict[str, things.Vpc] = field(default_factory=dict)
    subnets: dict[str, things.Subnet] = field(default_factory=dict)
    gateways: dict[str, things.Gateway] = field(default_factory=dict)
    tables: dict[str, things.Table] = field(default_factory=dict)
    endpoints: dict[str, things.Endpoint] = field(default_factory=dict)
    groups: dict[str, things.Group] = field(default_factory=dict)
    interfaces: dict[str, things.Interface] = field(default_factory=dict)
    instances: dict[str, Instance] = field(default_factory=dict)
    volumes: dict[str, things.Volume] = field(default_factory=dict)
    snapshots: dict[str, things.Snapshot] = field(default_factory=dict)
    addresses: dict[str, things.Address] = field(default_factory=dict)
    keys: dict[str, things.Key] = field(default_factory=dict)
    """By id; names are looked up."""
    schedules: dict[tuple[str, str], Schedule] = field(default_factory=dict)
    """By group and name."""
    queues: dict[str, Queue] = field(default_factory=dict)
    queues_deleted: dict[str, datetime] = field(default_factory=dict)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    secrets: dict[str, Secret] = field(default_factory=dict)

    def secret_arn(self, name_or_arn: str) -> str:
        """Of a secret by name; itself for what isn't one."""
        secret = self.secrets.get(name_or_arn)
        return secret.arn if secret else name_or_arn

    def kinds(self) -> list[dict[str, Any]]:
        """All that EC2 has here, kind by kind and by id."""
        return [
            self.instances,
            self.volumes,
            self.interfaces,
            self.endpoints,
            self.groups,
            self.gateways,
            self.subnets,
            self.tables,
            self.vpcs,
            self.keys,
            self.addresses,
            self.snapshots,
        ]

    def ec2(self) -> Iterator[things.Thing]:
        """Everything that EC2 has here."""
        return chain.from_iterable(kind.values() for kind in self.kinds())


class Account:
    """The state behind all clients."""

    def __init__(
        self, account: str, region: str, timeline: Timeline, rules: ModelRules, catalog: Catalog
    ) -> None:
        self.id, self.home, self.timeline, self.rules = account, region, timeline, rules
        self.catalog = catalog
        self.meter = Meter(catalog, timeline.time, region)
        self.regions: dict[str, Region] = {}
        self.instances: dict[str, Instance] = {}
        self.tokens: dict[tuple[str, str], tuple[object, list[Instance]]] = {}
        """By region and ClientToken: the request and what it launched."""
        self.roles: dict[str, Role] = {}
        self.profiles: dict[str, Profile] = {}
        self.buckets: dict[str, BucketState] = {}
        self.spot_prices: dict[tuple[str, str], Decimal] = {}
        """By type and zone; elsewhere 40% of the list price."""
        self.schedules_fire = True
        self.stalled: list[Callable[[], None]] = []
        """What the scheduler would have done while it was out of order."""
        self.on_launch: Callable[[Instance], None] | None = None
        self.on_end: Callable[[Instance], None] | None = None
        self.dated = 0
        """How often it was asked from when on a new thing shows."""
        self._made = 0

    def region(self, name: str) -> Region:
        if name not in self.regions:
            self.regions[name] = Region(name)
        return self.regions[name]

    def number(self) -> int:
        """1, 2, 3…"""
        self._made += 1
        return self._made

    def new_id(self, prefix: str) -> str:
        """Of EC2's shape, the same in every life, and in no order."""
        return f"{prefix}-{(self.number() * _SCRAMBLE) & _MASK:017x}"

    def visible_at(self) -> datetime:
        self.dated += 1
        return self.timeline.ahead(self.rules.invisible_s)

    def visible(self, found: dict[str, T]) -> list[T]:
        """Those old enough to be shown."""
        now = self.timeline.time()
        return [thing for thing in found.values() if thing.visible_at <= now]

    def find(self, found: dict[str, T], kind: str, name: str) -> T:
        """One by id; what is too new isn't found, as in EC2."""
        thing = found.get(name)
        if thing is None or thing.visible_at > self.timeline.time():
            raise not_found(kind, name)
        return thing
