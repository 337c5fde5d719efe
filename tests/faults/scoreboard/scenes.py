"""What happens in each scene, at moments that every policy has.

Nothing hangs on who makes which call: a laptop dies at a time, a box freezes at a time, and only
the first launch is named, as every policy has one.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.faults.clock import START
from tests.faults.fault import CONTROLLER, Kind
from tests.faults.machine import Died
from tests.faults.strikes import CLOCK_S, ControllerDied, Strikes
from tests.faults.trainer import Trainer
from tests.faults.wire import lost, refusal

BOX, JOB = "one", "train"
STEPS = 90
"""Of 20 s each: 30 minutes of work, in a box that is paid for 50."""
MINUTE = 60
OFFLINE_S = 120.0
ALL_NIGHT = 3000
LATEST = re.compile(rb"latest (\d+) whole")


@dataclass(frozen=True)
class Scene:
    """`acts`: what happens so many seconds after the launch was asked for."""

    name: str
    what: str
    acts: tuple[tuple[int, Callable[[Staged], None]], ...] = ()
    steps: int = STEPS
    spot: bool = False
    one_file: bool = False
    """The job writes its state over and over into one file, in place."""
    loses_answer: bool = False
    """RunInstances is accepted, and the laptop hears nothing from then on for two minutes."""


@dataclass
class SceneTrainer(Trainer):
    """A training job that may also do what jobs do to each other's nerves."""

    one_file: bool = False
    stuck: bool = False
    """It makes no step and hears no signal but SIGKILL."""
    being_written: set[Path] = field(default_factory=set)
    disk: dict[str, bytes] = field(default_factory=dict)
    """Its files as they are."""
    changes: int = 0

    def __post_init__(self) -> None:
        self.disk |= {
            path.relative_to(self.place.work).as_posix(): path.read_bytes()
            for path in self.place.work.rglob("*")
            if path.is_file()
        }
        super().__post_init__()
        latest = self._out / "latest"
        if self.one_file and latest.exists():
            whole = LATEST.fullmatch(latest.read_bytes())
            self._step = int(whole[1]) if whole else 0

    def advance(self) -> None:
        for path in self.being_written:
            self._write(path, "out/latest", path.read_bytes() + b".")
        if not self.stuck:
            super().advance()

    def delete_all(self) -> None:
        """Its clean-up takes its own results, and it fails."""
        shutil.rmtree(self._out)
        self._out.mkdir()
        self._code = 1
        self.disk.clear()
        self.changes += 1

    def write_half(self) -> None:
        """It begins to write its state anew, and is still at it."""
        path = self._out / "latest"
        self._write(path, "out/latest", path.read_bytes()[:9])
        self.being_written.add(path)
        self.stuck = True

    def _checkpoint(self) -> None:
        if not self.one_file:
            super()._checkpoint()
        else:
            self._write(self._out / "latest", "out/latest", b"latest %d whole" % self._step)

    def _write(self, path: Path, name: str, data: bytes) -> None:
        super()._write(path, name, data)
        self.disk[name] = data
        self.changes += 1


@dataclass
class Staged(Strikes):
    """One scene as it strikes. Flags stay until a person's next morning."""

    scene: Scene = field(default_factory=lambda: Scene("", ""))
    keys_on_boxes: bool = False
    """The box works with the person's own credentials, and they expire there, too."""
    laptop_gone: bool = False
    expired: bool = False
    refused: bool = False
    """Nobody may end an instance."""
    clock_behind: bool = False
    _offline_until: datetime = START

    def __post_init__(self) -> None:
        super().__post_init__()
        self._acts: list[tuple[datetime, Callable[[], None]]] = []
        for at_s, act in self.scene.acts:
            self.later(START + timedelta(seconds=at_s), lambda act=act: act(self))  # type: ignore[misc]

    def later(self, at: datetime, act: Callable[[], None]) -> None:
        self._acts.append((at, act))

    def moments(self) -> Iterator[datetime]:
        yield from super().moments()
        yield from (at for at, _ in self._acts)

    def at_this_moment(self) -> None:
        super().at_this_moment()
        for due in [entry for entry in self._acts if entry[0] <= self.world.time.at]:
            self._acts.remove(due)
            due[1]()
        for machine in self.world.machines.values():
            if self.clock_behind and machine.booted_at is None:
                machine.skew_s = -CLOCK_S

    def no_more(self) -> None:
        super().no_more()
        self.laptop_gone = self.expired = self.refused = False

    def before(self, actor: str, operation: str, nth: int, parameters: dict[str, Any]) -> None:
        if actor == CONTROLLER and self.laptop_gone:
            raise ControllerDied(gone=True)
        if actor == CONTROLLER and self.world.time.at < self._offline_until:
            raise lost(operation)
        if self.expired and (actor == CONTROLLER or self.keys_on_boxes):
            raise refusal(operation, "ExpiredToken")
        if operation == "terminate_instances" and self.refused:
            raise refusal(operation, "UnauthorizedOperation", 403)
        if actor == CONTROLLER or operation != "terminate_instances":
            super().before(actor, operation, nth, parameters)

    def after(self, actor: str, operation: str, nth: int, parameters: dict[str, Any]) -> None:
        super().after(actor, operation, nth, parameters)
        if self.scene.loses_answer and operation == "run_instances" and nth == 1:
            self._offline_until = self.world.time.at + timedelta(seconds=OFFLINE_S)
            raise lost(operation)

    def strike_box(self, kind: Kind) -> None:
        """One of the search's own faults, on the box that runs."""
        machine = self.world.box(BOX)
        try:
            self._strike_box(machine, kind)
        except Died as died:
            self.world._die(machine, str(died))

    def trainers(self) -> Iterator[SceneTrainer]:
        for machine in self.world.machines.values():
            yield from (t for t in machine.trainers if isinstance(t, SceneTrainer))


def _box(kind: Kind) -> Callable[[Staged], None]:
    return lambda staged: staged.strike_box(kind)


def _job(do: Callable[[SceneTrainer], None]) -> Callable[[Staged], None]:
    def act(staged: Staged) -> None:
        for trainer in staged.trainers():
            do(trainer)

    return act


def _flag(name: str) -> Callable[[Staged], None]:
    return lambda staged: setattr(staged, name, True)


def _hang(trainer: SceneTrainer) -> None:
    trainer.stuck, trainer._next = True, math.inf


def _nobody_ends(staged: Staged) -> None:
    staged.refused, staged.world.cloud.schedules_fire = True, False


_MID = 15 * MINUTE
SCENES = (
    Scene("all well", "nothing goes wrong"),
    Scene("job ends early", "the job is done after 10 of its 30 minutes", steps=30),
    Scene(
        "trainer hangs",
        "after 15 minutes the job makes no step any more, looks busy, and hears no signal but "
        "SIGKILL",
        ((_MID, _job(_hang)),),
    ),
    Scene("job overruns", "the job would take all night instead of 30 minutes", steps=ALL_NIGHT),
    Scene(
        "clock behind",
        "the same, and the box boots with its clock two hours behind",
        ((0, _flag("clock_behind")),),
        steps=ALL_NIGHT,
    ),
    Scene(
        "laptop dies",
        "five minutes in, whatever runs on the person's side is gone until the next morning",
        ((5 * MINUTE, _flag("laptop_gone")),),
    ),
    Scene(
        "launch's answer lost",
        "RunInstances is accepted, then the laptop is offline for two minutes; the person types "
        "the command again each minute",
        loses_answer=True,
    ),
    Scene(
        "box freezes",
        "after 15 minutes nothing on the box runs any more, no timer either, and EC2's own checks "
        "see nothing",
        ((_MID, _box(Kind.BOX_WEDGED)),),
    ),
    Scene(
        "spot notice",
        "on a spot box: after 15 minutes AWS gives its two minutes' notice",
        ((_MID, _box(Kind.SPOT_TAKEN)),),
        spot=True,
    ),
    Scene(
        "machine dies",
        "after 15 minutes the hardware under the box fails, and its disk is gone",
        ((_MID, _box(Kind.BOX_LOST)),),
    ),
    Scene(
        "S3 refuses",
        "S3 refuses the box for a minute; five minutes later the hardware fails",
        ((_MID, _box(Kind.S3_MINUTE)), (_MID + 6 * MINUTE, _box(Kind.BOX_LOST))),
    ),
    Scene(
        "files deleted",
        "after 25 minutes the job's own clean-up deletes its results on the box, and it fails",
        ((25 * MINUTE, _job(SceneTrainer.delete_all)),),
    ),
    Scene(
        "half-written file",
        "the job keeps its state in one file; the hardware fails while that is being written",
        ((_MID, _job(SceneTrainer.write_half)), (_MID + 25, _box(Kind.BOX_LOST))),
        one_file=True,
    ),
    Scene(
        "credentials expire",
        "the person's credentials expire after 27 minutes, until the next morning",
        ((27 * MINUTE, _flag("expired")),),
    ),
    Scene(
        "ending refused",
        "from minute 10 on AWS refuses TerminateInstances to everybody, and its scheduler is out",
        ((10 * MINUTE, _nobody_ends),),
    ),
)
