"""The proof's boxes: which enforcer each is left to, when, and what all may cost at worst. Pure.

One plan holds them all, so that the payload, the user data and the ledger are those of a run. The
schedule of a box that another enforcer is to end is set far later: it is the net beneath.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from orchestrator.catalog import Catalog
from orchestrator.ledger import Ledger
from orchestrator.money import hours_of
from orchestrator.plan import Plan
from orchestrator.planned import PlannedBox, PlannedJob
from orchestrator.quote import SLACK, VOLUME_SLACK, Cloud, beside_usd, compute_usd

NAME = "killproof"
INSTANCE = "t3.nano"
AMI_PARAMETER = (
    "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
)
"""The boxes' system is that of the GPU image, whose agent needs Python 3.10 or newer."""
DISK_GB = 8
DEFAULT_CAP_USD = Decimal("0.10")
OTHERS_USD = Decimal("0.01")
"""For S3 and its requests: some hundred, and 2 MB kept for a month."""
BURST_USD_PER_VCPU_HOUR = Decimal("0.05")
"""What a t3 in unlimited mode may cost on top (EC2 on-demand pricing page, "Unlimited Mode")."""
JOB = "work"
JOB_COMMAND = 'PYTHONPATH="$GPURUN_ROOT/agent" exec python3 -m orchestrator.box.probe'

AGENT, TIMER, SCHEDULE, GUARD = "agent", "timer", "schedule", "guard"
HALTED, CONTROLLER, SWEEP = "halted", "controller", "sweep"
BOXES = (AGENT, TIMER, SCHEDULE, GUARD, HALTED, CONTROLLER, SWEEP)
BURSTS = (AGENT,)
"""Has work to do at boot; the others may be slow, and so never cost more than their price."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds after the start, and how long to wait."""

    controller: int
    """When the controller ends its box."""
    foreign: int
    """When a schedule of this run tries to end the box of another."""
    expiry: int
    """Of the box that only a sweep ends."""
    timer: int
    schedule: int
    drain: int
    poweroff: int
    net: int
    loss_bound: int
    fires_late: int
    """A schedule fires at most so long after its time (Scheduler User Guide: the minute)."""
    ends_late: int
    """From the deadline to an instance that no longer runs, at most."""
    gone_late: int
    """From then to `terminated`, at most."""
    poll: float


LOCAL = Timing(
    controller=8,
    foreign=14,
    expiry=14,
    timer=17,
    schedule=20,
    drain=24,
    poweroff=36,
    net=240,
    loss_bound=4,
    fires_late=2,
    ends_late=20,
    gone_late=30,
    poll=0.5,
)
AWS = Timing(
    controller=150,
    foreign=210,
    expiry=210,
    timer=270,
    schedule=240,
    drain=300,
    poweroff=390,
    net=1200,
    loss_bound=30,
    fires_late=60,
    ends_late=120,
    gone_late=300,
    poll=5.0,
)
TIMINGS: dict[str, Timing] = {"local": LOCAL, "aws": AWS}


def proof_plan(
    cloud: Cloud, region: str, catalog: Catalog, now: datetime, timing: Timing, cap_usd: Decimal
) -> Plan:
    """The plan of a proof that starts at `now` (aware).

    Raises:
        CatalogError: the region doesn't offer or price the boxes' type.
        OverCap: the worst case doesn't fit under the cap.
    """
    boxes = tuple(_box(name, region, catalog, now, timing) for name in BOXES)
    price = catalog.price(INSTANCE, region)
    plan = Plan(
        name=NAME,
        cloud=cloud,
        region=region,
        cap_usd=cap_usd,
        worst_case_usd=sum((box.worst_case_usd for box in boxes), OTHERS_USD),
        expected_usd=sum((box.expected_usd for box in boxes), Decimal("0.001")),
        results_usd=OTHERS_USD,
        results_gb=Decimal("0.002"),
        planned_at=now,
        loss_bound_s=timing.loss_bound,
        prices_as_of=min(price.as_of, catalog.storage(region).retrieved_at),
        ami_parameter=AMI_PARAMETER,
        ami_id=None,
        pins={},
        boxes=boxes,
        jobs=(_job(timing),),
    )
    reserve_all(plan)
    return plan


def reserve_all(plan: Plan) -> Ledger:
    """The ledger with every line of the proof reserved; raises OverCap."""
    ledger = Ledger(plan.cap_usd)
    for line, worst in plan.reservations().items():
        ledger = ledger.reserve(line, worst)
    return ledger


def burst_usd(box: str, vcpus: int, hours: Decimal) -> Decimal:
    """The most that a box's CPU may cost on top of its price, in so many hours."""
    return BURST_USD_PER_VCPU_HOUR * vcpus * hours if box in BURSTS else Decimal(0)


def _box(name: str, region: str, catalog: Catalog, now: datetime, timing: Timing) -> PlannedBox:
    kind, price = catalog.instance(INSTANCE), catalog.price(INSTANCE, region)
    drain, poweroff, cloud = _deadlines(name, now, timing)
    life = cloud - now + SLACK
    storage = catalog.storage(region)
    hours = hours_of(int(life.total_seconds()))
    return PlannedBox(
        name=name,
        instance=INSTANCE,
        fallbacks=(),
        price_usd_per_hour=price.usd_per_hour,
        worst_price_usd_per_hour=price.usd_per_hour,
        prices_usd_per_hour={INSTANCE: price.usd_per_hour},
        price_source=price.source,
        hours=hours,
        drain_at=drain,
        poweroff_at=poweroff,
        cloud_at=cloud,
        disk_gb=DISK_GB,
        worst_case_usd=compute_usd(price.usd_per_hour, life)
        + beside_usd(storage, DISK_GB, life + VOLUME_SLACK)
        + burst_usd(name, kind.vcpus, hours),
        expected_usd=compute_usd(price.usd_per_hour, poweroff - now)
        + beside_usd(storage, DISK_GB, poweroff - now),
        expected_hours=hours_of(int((poweroff - now).total_seconds())),
        quota_code=kind.quota_code,
        vcpus=kind.vcpus,
        gpu=kind.gpu,
        gpus=kind.gpus,
        gpu_memory_mib=kind.gpu_memory_mib,
        zones={INSTANCE: catalog.zones(INSTANCE, region)},
    )


def _deadlines(name: str, now: datetime, timing: Timing) -> tuple[datetime, datetime, datetime]:
    """Drain, power-off, cloud: the first two mean something only where a box has them."""
    seconds = {
        AGENT: (timing.drain, timing.poweroff, timing.net),
        TIMER: (timing.timer, timing.timer, timing.net),
        SCHEDULE: (timing.schedule,) * 3,
        GUARD: (timing.schedule, timing.schedule, timing.net),
        HALTED: (timing.schedule,) * 3,
        CONTROLLER: (timing.controller, timing.controller, timing.net),
        SWEEP: (timing.schedule, timing.schedule, timing.net),
    }[name]
    drain, poweroff, cloud = (now + timedelta(seconds=each) for each in seconds)
    return drain, poweroff, cloud


def _job(timing: Timing) -> PlannedJob:
    return PlannedJob(
        name=JOB,
        box=AGENT,
        program=None,
        command=JOB_COMMAND,
        config={},
        needs=(),
        inputs={},
        pins=None,
        requirements=None,
        requirements_sha256=None,
        workdir=None,
        workdir_bytes=0,
        workdir_files=0,
        results=("out",),
        retries=0,
        expected_hours=hours_of(timing.drain),
        expect={},
    )
