"""What must be true of a life, whatever went wrong in it. Each breach is one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from orchestrator.catalog import load_catalog
from orchestrator.localcloud.meter import MINIMUM_S
from orchestrator.localcloud.meter import Kind as Line
from orchestrator.quote import SLACK
from orchestrator.results import State
from tests.faults.clock import START
from tests.faults.cloud import Instance
from tests.faults.fault import CONTROLLER, Kind
from tests.faults.life import POLL_S, RESUMED_AFTER_S, Life, the_plan
from tests.faults.machine import Machine
from tests.faults.strikes import MINUTE_S
from tests.faults.trainer import Written
from tests.faults.world import LINGER_S, REGION, SHUTDOWN_S

AGREE = Decimal("0.01")
"""Our books and the cloud's meter may differ by so much of the metered amount."""
# While S3 refuses, nothing can arrive; after that the agent's longest pause and one round.
OUTAGE_S = MINUTE_S + 45.0
FOR_EVER = 1e9
SECOND_S = 1.0
HOURS_PER_MONTH = 730
UNATTENDED = {Kind.GONE_BEFORE, Kind.GONE_AFTER}
HARMLESS = {Kind.TRAINER_KILLED, Kind.CLOCK_BEHIND}


def breaches(life: Life) -> list[str]:
    """Every promise that was broken; empty for a good life."""
    seen = life.world.broken
    return [*seen, *_money(life), *_leak(life), *_results(life), *_whole(life), *_books(life)]


def _money(life: Life) -> Iterator[str]:
    spent = sum((life.world.cloud.bill(run) for run in life.runs), Decimal(0))
    if spent > life.cap_usd:
        yield f"money: spent ${spent:.4f} of a cap of ${life.cap_usd}"
    for line in life.over:
        yield f"money: {line}"


def _leak(life: Life) -> Iterator[str]:
    for item in life.billable:
        yield f"leak: {item} bills ten minutes after the deadline"
    for item in life.tagged:
        yield f"leak: {item} is left after the sweep"


def _books(life: Life) -> Iterator[str]:
    """The ledger says what the meter says, where the controller could see the end of each box."""
    if life.settled_usd is None:
        return
    lines = [line for run in life.runs for line in life.world.cloud.bill_lines(run)]
    timed = (Line.COMPUTE, Line.EBS, Line.IPV4)
    metered = sum((Decimal(line["usd"]) for line in lines if line["kind"] in timed), Decimal(0))
    ours = life.settled_usd - _settled_for_results(life)
    least = sum((_minute_of_disk(life, line) for line in lines), Decimal(0))
    if ours < metered * (1 - AGREE):
        yield f"books: the ledger has ${ours:.4f}, the meter ${metered:.4f}"
    elif ours > metered * (1 + AGREE) + least + _told(life) and not life.forgotten:
        yield f"books: the ledger has ${ours:.4f}, the meter only ${metered:.4f}"


def _minute_of_disk(life: Life, line: dict[str, str]) -> Decimal:
    """Our books bill each disk for a minute at least, the meter by the second."""
    short = Decimal(MINIMUM_S) / 3600 - Decimal(line["hours"])
    if line["kind"] != Line.EBS or short <= 0:
        return Decimal(0)
    return _disk_usd_per_hour(life, line["box"]) * short


def _told(life: Life) -> Decimal:
    """What our books may be over because of what EC2 tells of a box's times.

    A launch it tells in whole seconds, the meter knows the fraction. An end of its own it doesn't
    tell at all: such a box is billed until somebody looks at it.
    """
    found = life.world.cloud.instances.values()
    return sum((_usd(life, i, SECOND_S + _unseen_s(life, i)) for i in found), Decimal(0))


def _unseen_s(life: Life, instance: Instance) -> float:
    """Where nobody looks in time, it is billed to the end of what was reserved for it."""
    own_end = instance.reason.startswith("Server.")
    if not own_end or life.record is None or instance.ended_at is None:
        return 0.0
    box = life.record.plan.box(instance.tags["gpurun:box"])
    left = box.cloud_at + SLACK - instance.ended_at
    return min(max(left.total_seconds(), 0.0), _looked_within_s(life))


def _usd(life: Life, instance: Instance, seconds: float) -> Decimal:
    """The box, its disk and its address for so long."""
    compute = load_catalog().price(instance.type, REGION).usd_per_hour
    disk = _disk_usd_per_hour(life, instance.tags["gpurun:box"])
    per_hour = compute + load_catalog().storage(REGION).ipv4_hour + disk
    return per_hour * Decimal(seconds) / 3600


def _looked_within_s(life: Life) -> float:
    """It is terminated, then looked at; a teardown first deletes the network; a fault costs a
    controller a minute."""
    struck = [f.kind for f in life.world.strikes.struck if f.actor == CONTROLLER and f.at_s < 0]
    if UNATTENDED & set(struck) or not life.world.enforcers.controller:
        return FOR_EVER
    delays = RESUMED_AFTER_S * len(struck) + LINGER_S * (Kind.SECOND_DOWN in struck)
    return SHUTDOWN_S + POLL_S + delays


def _disk_usd_per_hour(life: Life, box: str) -> Decimal:
    plan = life.record.plan if life.record else the_plan()
    return plan.box(box).disk_gb * load_catalog().storage(REGION).gp3_gb_month / HOURS_PER_MONTH


def _whole(life: Life) -> Iterator[str]:
    """Nothing that was pulled is damaged, and what calls itself complete lacks nothing."""
    for run, report in life.pulled.items():
        for job, pulled in report.jobs.items():
            if pulled.state is State.CORRUPT:
                yield f"results: {job} of {run} is damaged: {'; '.join(pulled.problems)}"
            if pulled.state is State.COMPLETE:
                last = {w.name: w for w in _last_life(life, job)}
                for name, written in last.items():
                    if _pulled(life, job, name) != written.data:
                        yield f"results: {job} is called complete and lacks the last {name}"


def _last_life(life: Life, job: str) -> list[Written]:
    """What the job wrote on the box that ended it: an earlier box may have lost its last words."""
    boxes = [m for m in life.world.machines.values() if job in {t.job for t in m.trainers}]
    since = max((m.booted_at or 0.0 for m in boxes), default=0.0)
    return [w for w in life.world.written if w.job == job and w.at >= since]


def _settled_for_results(life: Life) -> Decimal:
    return life.settled_results_usd


def _results(life: Life) -> Iterator[str]:
    """What was older than the loss bound when its box died was pulled; at a planned end, all."""
    for machine in life.world.machines.values():
        if life.world.deaths.get(machine.instance_id) is None or machine.booted_at is None:
            continue
        for job in {trainer.job for trainer in machine.trainers}:
            yield from _job(life, machine, job)


def _job(life: Life, machine: Machine, job: str) -> Iterator[str]:
    died_at, _ = life.world.deaths[machine.instance_id]
    mine = [w for w in life.world.written if w.job == job]
    bound = _bound_s(life, machine)
    due = {w.name: w for w in mine if w.at <= died_at - bound and w.at >= (machine.booted_at or 0)}
    whole = _whole_checkpoints(due)
    for name, newest in due.items():
        if "checkpoint-" in name and name.rpartition("/")[0] not in whole:
            continue
        got = _pulled(life, job, name)
        if got is None:
            age_s = died_at - newest.at
            yield f"results: {job}/{name}, {age_s:.0f} s old at death, was not pulled"
        elif not _is_that_or_later(got, newest, mine):
            yield f"results: {job}/{name} was pulled in a state older than the loss bound"
    yield from _invented(life, job, mine)


def _invented(life: Life, job: str, mine: list[Written]) -> Iterator[str]:
    """Nothing was pulled that was never written."""
    known = {(w.name, w.data) for w in mine}
    for run in life.pulled:
        folder = life.folder / run / job
        for path in folder.rglob("*") if folder.is_dir() else ():
            name = path.relative_to(folder).as_posix()
            if path.is_file() and name != "stacks.txt" and (name, path.read_bytes()) not in known:
                if name.endswith((".jsonl", ".txt")):
                    grown = [w.data for w in mine if w.name == name]
                    if any(data.startswith(path.read_bytes()) for data in grown):
                        continue
                yield f"results: {job}/{name} was pulled but never written like that"


def _whole_checkpoints(due: dict[str, Written]) -> set[str]:
    markers = {name.rpartition("/")[0] for name in due if name.endswith("trainer_state.json")}
    return {f for f in markers if {n for n in due if n.startswith(f + "/")}}


def _is_that_or_later(got: bytes, newest: Written, mine: list[Written]) -> bool:
    later = [w.data for w in mine if w.name == newest.name and w.at >= newest.at]
    return any(got == data for data in later)


def _pulled(life: Life, job: str, name: str) -> bytes | None:
    for run in reversed(life.runs):
        path = life.folder / run / job / name
        if path.is_file():
            return path.read_bytes()
    return None


def _bound_s(life: Life, machine: Machine) -> float:
    """The loss bound, longer by what nobody can help: S3 that refused this box."""
    kinds = {fault.kind for fault in life.world.strikes.struck if fault.actor == machine.name}
    if Kind.S3_EVER in kinds:
        return FOR_EVER
    _, reason = life.world.deaths[machine.instance_id]
    if reason == "Client.InstanceInitiatedShutdown" and kinds <= HARMLESS:
        return 0.0  # a planned end: nothing at all is lost
    bound = float(the_plan().loss_bound_s)
    return bound + (OUTAGE_S if Kind.S3_MINUTE in kinds else 0.0)


def ended_at_s(life: Life) -> float:
    """When the last box died, in seconds after the start; 0 when there was none."""
    ends = [at for at, _ in life.world.deaths.values()]
    return max(ends, default=START.timestamp()) - START.timestamp()
