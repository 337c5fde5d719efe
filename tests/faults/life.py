"""One life of a run, as a person lives it: up, watch, down, pull, sweep, whatever goes wrong.

The person is patient and simple: what died or failed is resumed a minute later, credentials are
renewed, and long after the run has expired somebody else sweeps, settles and pulls on another
machine that knows nothing but the run's id.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from orchestrator import results, start
from orchestrator.aws import sweep
from orchestrator.aws.bucket import Bucket, find_run_bucket
from orchestrator.box import agent, memory, pieces, store, sync
from orchestrator.box.streams import streams
from orchestrator.catalog import load_catalog
from orchestrator.errors import CapacityError, GpurunError, LaunchError, QuotaError
from orchestrator.lives import UNLISTED
from orchestrator.payload import Payload, box_spec
from orchestrator.plan import RESULTS, Plan, make_plan
from orchestrator.purse import NEVER_SHOWN
from orchestrator.remote import KeyPair, new_key_pair
from orchestrator.run import EventKind, RunRecord, read_record
from orchestrator.runbook import load_runbook
from orchestrator.runner import Runner
from tests.faults.clock import START
from tests.faults.strikes import ControllerDied
from tests.faults.world import ACCOUNT, REGION, World

if TYPE_CHECKING:
    from orchestrator.aws.session import Session

RUNBOOK = Path(__file__).with_name("life.yaml")
BUCKET = f"gpurun-{ACCOUNT}-{REGION}"
ADDRESS: str | None = "203.0.113.7/32"
POLL_S = 30.0
RESUMED_AFTER_S = 60.0
TRIES = 12
GRACE = timedelta(minutes=10)


@dataclass
class Life:
    """What a life left: the world as it is in the end, and what was seen on the way."""

    world: World
    runs: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    billable: list[str] = field(default_factory=list)
    """What still cost money ten minutes after the deadline, before anybody swept."""
    tagged: list[str] = field(default_factory=list)
    """What still carried the tag after the sweep."""
    pulled: dict[str, results.PullReport] = field(default_factory=dict)
    folder: Path = Path()
    record: RunRecord | None = None
    settled_usd: Decimal | None = None
    settled_results_usd: Decimal = Decimal(0)
    over: list[str] = field(default_factory=list)
    """Lines of the ledger that cost more than was reserved for them."""
    forgotten: bool = False
    """EC2 didn't show some box when it was settled, so that it was settled at its worst."""
    cap_usd: Decimal = Decimal(0)


@cache
def the_plan() -> Plan:
    """Made once: planning is pure, and asks nobody."""
    plan = make_plan(load_runbook(RUNBOOK), now=START, catalog=load_catalog(), cloud="aws")
    return plan.model_copy(update={"cap_usd": plan.worst_case_usd})


def live(world: World) -> Life:
    """Live it to its end."""
    life = Life(world, cap_usd=the_plan().cap_usd, folder=world.folder / "pulled")
    world.strikes.second_up = lambda: _elsewhere(life, down=False)
    world.strikes.second_down = lambda: _elsewhere(life, down=True)
    with _simulated(world):
        _controller(life)
        _wait_until(world, _deadline(life) + GRACE)
        life.billable = [item for run in _all_runs(life) for item in world.cloud.billable(run)]
        _afterwards(life)
    return life


def _controller(life: Life) -> None:
    """`up`, then `resume` after each death or failure, as long as there is a point in it."""
    for _ in range(TRIES):
        try:
            _command(life)
            return
        except ControllerDied as died:
            if died.gone or not life.world.enforcers.controller:
                return
        except (CapacityError, QuotaError, LaunchError) as error:
            life.errors.append(repr(error))
            return
        except GpurunError as error:
            life.errors.append(repr(error))
        life.world.time.sleep(RESUMED_AFTER_S)
        life.world.strikes.renewed = True


def _command(life: Life) -> None:
    world, session = life.world, life.world.session()
    if not life.runs or not _on_record(life):
        plan = the_plan()
        name = f"life-261201-200000-aaa{'abcdefghijklmnop'[len(life.runs)]}"
        life.runs.append(name)
        with mock.patch("orchestrator.run.new_run_id", return_value=name):
            bucket, record = start.start_run(session, plan, world.time, boxes_are_processes=False)
    else:
        bucket, record = _opened(session, life.runs[-1])
    life.record = record
    runner = Runner(bucket.session, bucket, record, world.time, poll_s=POLL_S)
    if not world.enforcers.controller:
        runner.launch_all()
        return
    runner.drive()


def _elsewhere(life: Life, *, down: bool) -> None:
    """Another person's command at the same moment, on another machine."""
    if not life.runs or not _on_record(life):
        return
    session = life.world.session()
    bucket, record = _opened(session, life.runs[-1])
    runner = Runner(bucket.session, bucket, record, life.world.time, poll_s=POLL_S)
    try:
        runner.finish() if down else runner.launch_all()
    except GpurunError as error:
        life.errors.append(f"elsewhere: {error!r}")


def _afterwards(life: Life) -> None:
    """Somebody sweeps, settles with `down`, and pulls, on a machine that never saw the run."""
    world = life.world
    world.strikes.no_more()
    session = world.session()
    swept = sweep.sweep(session, world.time.now(), [REGION])
    life.errors += [f"swept, but left {item.kind} {item.id}" for item in swept.left]
    life.tagged = [item for run in _all_runs(life) for item in world.cloud.tagged(run)]
    for run in life.runs:
        if _has_record(world, run):
            bucket, record = _opened(session, run)
            runner = Runner(bucket.session, bucket, record, world.time)
            runner.finish()
            life.record, ledger = record, runner.books.ledger()
            life.over += _over_reserved(runner)
            said = {event.reason for event in runner.log.read()}
            life.forgotten = life.forgotten or bool(said & {NEVER_SHOWN, UNLISTED})
            life.settled_usd = (life.settled_usd or Decimal(0)) + ledger.settled_usd
            life.settled_results_usd += ledger.settled.get(RESULTS, Decimal(0))
            names = [job.name for job in record.plan.jobs]
            life.pulled[run] = results.pull(bucket, run, life.folder, names)


def _over_reserved(runner: Runner) -> list[str]:
    events = runner.log.read()
    reserved = {e.box: e.usd for e in events if e.kind is EventKind.RESERVED and e.usd}
    return [
        f"{e.box} cost ${e.usd}, reserved were ${reserved.get(e.box)}"
        for e in events
        if e.kind is EventKind.SETTLED and e.usd and e.usd > reserved.get(e.box, Decimal(0))
    ]


def _opened(session: Session, run: str) -> tuple[Bucket, RunRecord]:
    bucket = find_run_bucket(session, run)
    return bucket, read_record(bucket, run)


def _on_record(life: Life) -> bool:
    return _has_record(life.world, life.runs[-1])


def _has_record(world: World, run: str) -> bool:
    if BUCKET not in world.cloud.buckets:
        return False
    return world.cloud.objects(BUCKET).get(f"runs/{run}/run.json") is not None


def _all_runs(life: Life) -> list[str]:
    return life.runs


def _deadline(life: Life) -> datetime:
    return life.record.expires_at if life.record else life.world.time.now()


def _wait_until(world: World, at: datetime) -> None:
    world.time.sleep(max(0.0, (at - world.time.now()).total_seconds()))


@contextmanager
def _simulated(world: World) -> Iterator[None]:
    """What isn't the subject and costs time or asks the internet: packing, keys, own address."""
    with (
        mock.patch.object(start, "build_payload", partial(_payload, world.folder)),
        mock.patch.object(start, "new_key_pair", return_value=_one_key_pair()),
        mock.patch.object(start, "caller_cidr", return_value=ADDRESS),
        mock.patch.object(sync, "STREAMS", 1),
        mock.patch.object(store, "STREAMS", 1),
        mock.patch.object(pieces, "LEAST", 64),  # what it grows to is small, too
        mock.patch.object(pieces, "FAN", 3),
        mock.patch.object(results, "ThreadPoolExecutor", _at_once),
        mock.patch.object(sweep, "ThreadPoolExecutor", _at_once),
        mock.patch.object(agent, "remember", partial(_remember, world)),
    ):
        yield


def _at_once(_: int) -> Executor:
    """Threads that have nothing to wait for cost more than they do."""
    return streams(1)


def _remember(world: World, job: Any, folder: Path) -> None:
    """A box whose disk is full can't write down where it is."""
    if any(m.is_full() for m in world.machines.values() if folder.is_relative_to(m.folder)):
        raise OSError(errno.ENOSPC, "no space left on the device")
    memory.remember(job, folder)


def _payload(folder: Path, plan: Plan, run_id: str, bucket: str, **_: Any) -> Payload:
    """The box specs alone, as the real payload has them."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for box in plan.boxes:
            spec = json.dumps(box_spec(plan, box.name, run_id=run_id, bucket=bucket)).encode()
            entry = tarfile.TarInfo(f"boxes/{box.name}.json")
            entry.size = len(spec)
            archive.addfile(entry, io.BytesIO(spec))
    data = packed.getvalue()
    sha256 = hashlib.sha256(data).hexdigest()
    path = folder / sha256
    path.write_bytes(data)
    return Payload(path, sha256)


@cache
def _one_key_pair() -> KeyPair:
    return new_key_pair("life")
