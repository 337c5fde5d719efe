"""One life of a policy in one scene, and of ours: the real controller and the real agent."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from unittest import mock

from orchestrator.catalog import load_catalog
from orchestrator.manifests import Manifest
from orchestrator.plan import Plan, make_plan
from orchestrator.runbook import load_runbook
from tests.faults import life, machine, search
from tests.faults.clock import START
from tests.faults.life import BUCKET, GRACE
from tests.faults.scoreboard.policies import POLICIES, Kept, Policy
from tests.faults.scoreboard.scenes import Scene, SceneTrainer, Staged
from tests.faults.scoreboard.yard import RUN, Computer, Yard, on_end
from tests.faults.strikes import ControllerDied
from tests.faults.trainer import STEP_S
from tests.faults.world import Enforcers, World

OURS = "gpurun"
TITLES = (*(policy.title for policy in POLICIES), OURS)
BOUND_S = 60.0
MORNING = timedelta(hours=12)
"""When somebody looks at the bill, after the launch in the evening."""
RUNBOOK = """
name: scoreboard
cap_usd: 8
regions: [us-east-1]
loss_bound: 60s
results_gb: 0.1
boxes:
  one: {instance: g6e.4xlarge, hours: 50m, drain: 5m, cloud_margin: 2m, spot: SPOT}
jobs:
  train: {box: one, command: sim STEPS, hours: 40m, retries: 1, stall: 10m}
"""

_WHOLE = re.compile(rb"(?:model (\d+)|latest (\d+) whole)")
_WEIGHTS = re.compile(rb"weights \w+ (\d+)")
_MARKER = re.compile(rb'{"global_step": (\d+)}')


@dataclass(frozen=True)
class Cell:
    """What became of the promises in one scene under one policy."""

    spent_usd: Decimal
    cap_usd: Decimal
    bills: tuple[str, ...]
    """What cost money ten minutes after the deadline."""
    lost_min: float
    """Minutes of saved work that can't be had back, of what was saved a minute before the end."""

    @property
    def money(self) -> bool:
        return self.spent_usd <= self.cap_usd

    @property
    def leak(self) -> bool:
        return not self.bills

    @property
    def results(self) -> bool:
        return self.lost_min == 0


@cache
def plan_for(scene: Scene) -> Plan:
    """Its worst case is the cap, for every policy; its deadlines are those that each is given."""
    text = RUNBOOK.replace("STEPS", str(scene.steps)).replace("SPOT", str(scene.spot).lower())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scoreboard.yaml"
        path.write_text(text)
        plan = make_plan(load_runbook(path), now=START, catalog=load_catalog(), cloud="aws")
    return plan.model_copy(update={"cap_usd": plan.worst_case_usd})


def live(title: str, scene: Scene, enforcers: Enforcers | None = None) -> Cell:
    """One cell of the board, the same each time. `enforcers`: ours that work at all."""
    search.quiet()
    with _played(scene):
        if title == OURS:
            return _ours(scene, enforcers or Enforcers())
        policy = next(policy for policy in POLICIES if policy.title == title)
        return _theirs(policy(), scene)


def _ours(scene: Scene, enforcers: Enforcers) -> Cell:
    world = World(Staged(scene=scene), enforcers)
    losses = Losses(world, partial(_committed, world))
    try:
        with mock.patch.object(life, "the_plan", return_value=plan_for(scene)):
            lived = life.live(world)
        return _cell(world, scene, lived.runs, lived.billable, losses)
    finally:
        world.close()


def _theirs(policy: Policy, scene: Scene) -> Cell:
    staged = Staged(scene=scene, keys_on_boxes=policy.keys_on_boxes)
    world = World(staged, kind=partial(Computer, policy))
    plan = plan_for(scene)
    try:
        yard, losses = Yard(world, staged, plan), Losses(world, policy.kept)
        with suppress(ControllerDied):
            policy.control(yard)
        deadline = plan.boxes[0].cloud_at
        yard.sleep_until_s((deadline + GRACE - START).total_seconds())
        billable = world.cloud.billable(RUN)
        return _cell(world, scene, [RUN], billable, losses)
    finally:
        world.close()


def _cell(
    world: World, scene: Scene, runs: list[str], billable: list[str], losses: Losses
) -> Cell:
    world.time.sleep((START + MORNING - world.time.at).total_seconds())
    spent = sum((world.cloud.bill(run) for run in runs), Decimal(0))
    losses.look()
    return Cell(
        spent_usd=spent,
        cap_usd=plan_for(scene).cap_usd,
        bills=tuple(item.partition(" ")[0] for item in billable),
        lost_min=losses.most_steps * STEP_S / 60,
    )


@dataclass
class Losses:
    """Compares what can be had with what was saved on the box, whenever a box ends and at last."""

    world: World
    kept: Callable[[], Kept]
    most_steps: int = 0

    def __post_init__(self) -> None:
        on_end(self.world, lambda _: self.look())

    def look(self) -> None:
        """Of what was saved up to a minute before the last box died, or now if one lives."""
        deaths = [at for at, _ in self.world.deaths.values()]
        all_dead = len(deaths) == len(self.world.machines)
        end = max(deaths) if all_dead else self.world.time.monotonic()
        due = saved_step((w.name, w.data) for w in self.world.written if w.at <= end - BOUND_S)
        self.most_steps = max(self.most_steps, due - saved_step(self.kept()))


def saved_step(files: Kept) -> int:
    """The newest step whose state is whole among these files, or versions of files."""
    steps, weights, markers = {0}, set(), set()
    for name, data in files:
        if whole := _WHOLE.fullmatch(data):
            steps.add(int(whole[1] or whole[2]))
        elif found := _WEIGHTS.fullmatch(data):
            weights.add(int(found[1]))
        elif name.endswith("trainer_state.json") and (state := _MARKER.fullmatch(data)):
            markers.add(int(state[1]))
    return max(steps | (weights & markers))


def _committed(world: World) -> Kept:
    """Every file that any committed manifest names, if it has the hash that it says."""
    held = world.cloud.objects(BUCKET) if BUCKET in world.cloud.buckets else {}
    for key in [key for key in held if "/manifests/" in key]:
        blobs = key.partition("/manifests/")[0] + "/blobs/"
        for name, file in Manifest.model_validate_json(held[key]).files.items():
            data = b"".join(held.get(blobs + piece.sha256, b"") for piece in file.blobs)
            if hashlib.sha256(data).hexdigest() == file.sha256:
                yield name, data


@contextmanager
def _played(scene: Scene) -> Iterator[None]:
    """With the scene's kind of job on every box."""
    job = partial(SceneTrainer, one_file=scene.one_file)
    with mock.patch.object(machine, "Trainer", job):
        yield
