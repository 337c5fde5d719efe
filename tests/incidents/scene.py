"""A run in the simulated world of `tests/faults`, with a hand on every lever.

Boxes run the real agent and controllers are the real one; time passes only while somebody waits.
Each controller knows nothing but the run's id, as one on another machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from orchestrator import start
from orchestrator.aws import sweep
from orchestrator.aws.bucket import Bucket, find_run_bucket
from orchestrator.aws.session import Session
from orchestrator.catalog import load_catalog
from orchestrator.plan import Plan, make_plan
from orchestrator.results import PullReport, pull
from orchestrator.run import Event, EventKind, RunRecord, read_record
from orchestrator.runbook import load_runbook
from orchestrator.runner import Runner
from tests.faults import life
from tests.faults.clock import START
from tests.faults.cloud import Instance
from tests.faults.cloud.client import Call
from tests.faults.fault import CONTROLLER, parse
from tests.faults.life import Life
from tests.faults.promises import breaches
from tests.faults.strikes import ControllerDied, Strikes
from tests.faults.wire import refusal
from tests.faults.world import REGION, Enforcers, World

POLL_S = 30.0
MINUTE = timedelta(minutes=1)
ALIVE = ("pending", "running", "stopping", "stopped")
ONE_BOX = """
name: scene
cap_usd: 5
regions: [us-east-1]
loss_bound: 60s
results_gb: 0.1
boxes:
  one: {instance: g6.xlarge, hours: 12m, drain: 2m, cloud_margin: 1m}
jobs:
  train: {box: one, command: sim 6, hours: 5m, retries: 0}
"""
"""A box whose job has six steps of 20 s each; it drains 10 minutes after the start."""
FOR_EVER = ONE_BOX.replace("sim 6", "sim 100000")


def lived(
    schedule: str = "",
    enforcers: Enforcers | None = None,
    arrange: Callable[[World], None] = lambda _: None,
) -> tuple[list[str], Life]:
    """A whole life of the search's own runbook: the promises that broke in it, and what it left.

    `arrange` turns the world before it begins. The folder of what was pulled is gone by then.
    """
    world = World(Strikes(parse(schedule)), enforcers or Enforcers())
    arrange(world)
    try:
        whole = life.live(world)
        return breaches(whole), whole
    finally:
        world.close()


@cache
def plan_of(text: str) -> Plan:
    """As if made at the start of the simulated time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scene.yaml"
        path.write_text(text)
        return make_plan(load_runbook(path), now=START, catalog=load_catalog(), cloud="aws")


@dataclass
class Scene:
    """One run. `refused` operations of controllers get that code as their answer."""

    world: World
    plan: Plan
    run_id: str = ""
    refused: dict[str, str] = field(default_factory=dict)
    offline: bool = False
    """Nothing that a controller sends arrives."""
    calls: list[Call] = field(default_factory=list)
    """What reached the cloud from controllers."""
    at_call: Callable[[Call], None] = lambda _: None
    _killed: bool = False

    def __post_init__(self) -> None:
        self.world.cloud.before = self._before

    def kill_after(self, operation: str, nth: int = 1) -> None:
        """The controller's nth such call has its effect, and it sees no answer: SIGKILL."""
        left = [nth]

        def after(call: Call) -> None:
            left[0] -= (call.caller, call.operation) == (CONTROLLER, operation)
            if left[0] == 0:
                self.world.cloud.after = None
                self._killed = True
                raise ControllerDied(gone=True)

        self.world.cloud.after = after

    def begin(self) -> Runner:
        """Put the run on record; nothing is built yet."""
        bucket, record = start.start_run(
            self.world.session(), self.plan, self.world.time, boxes_are_processes=False
        )
        self.run_id = record.run_id
        return self._runner(bucket, record)

    def launched(self) -> Runner:
        """The same, and every box is launched and armed."""
        runner = self.begin()
        runner.launch_all()
        return runner

    def controller(self) -> Runner:
        """Somebody elsewhere, who knows the run's id."""
        bucket = find_run_bucket(self.elsewhere(), self.run_id)
        return self._runner(bucket, read_record(bucket, self.run_id))

    def sweep(self) -> sweep.Swept:
        """Somebody elsewhere, who knows nothing."""
        return sweep.sweep(self.elsewhere(), self.world.time.now(), [REGION])

    def pull(self) -> PullReport:
        bucket = find_run_bucket(self.elsewhere(), self.run_id)
        names = [job.name for job in self.plan.jobs]
        return pull(bucket, self.run_id, self.world.folder / "pulled", names)

    def pulled(self, job: str, name: str) -> bytes:
        return (self.world.folder / "pulled" / self.run_id / job / name).read_bytes()

    def until(self, at: datetime) -> None:
        """Let time pass."""
        self.world.time.sleep((at - self.world.time.now()).total_seconds())

    def wait(self, seconds: float) -> None:
        self.world.time.sleep(seconds)

    def instances(self, box: str = "") -> list[Instance]:
        """All there ever were, of that box or of all."""
        every = self.world.cloud.instances.values()
        return [each for each in every if not box or self.world.machines[each.id].name == box]

    def alive(self) -> list[Instance]:
        return [each for each in self.instances() if each.state in ALIVE]

    def left(self) -> list[str]:
        """What still carries the run's tag; nothing in S3."""
        return self.world.cloud.tagged(self.run_id)

    def events(self, kind: EventKind) -> list[Event]:
        return [event for event in self.controller().log.read() if event.kind is kind]

    def elsewhere(self) -> Session:
        """The session of another process, on another machine."""
        self._killed = False
        return self.world.session()

    def _runner(self, bucket: Bucket, record: RunRecord) -> Runner:
        return Runner(bucket.session, bucket, record, self.world.time, poll_s=POLL_S)

    def _before(self, call: Call) -> None:
        if call.caller != CONTROLLER:
            return
        if self._killed:
            raise ControllerDied(gone=True)
        self.at_call(call)
        if self.offline:
            raise refusal(call.operation, "ServiceUnavailable", 503)
        if call.operation in self.refused:
            raise refusal(call.operation, self.refused[call.operation], 403)
        self.calls.append(call)


@contextmanager
def opened(text: str = ONE_BOX, enforcers: Enforcers | None = None) -> Iterator[Scene]:
    """A scene whose plan is that runbook's, as long as it is entered."""
    world = World(Strikes(), enforcers or Enforcers())
    try:
        with life._simulated(world):
            yield Scene(world, plan_of(text))
    finally:
        world.close()
