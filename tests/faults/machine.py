"""A box in simulated time: what its user data arms, and the real agent on files in memory.

The watchers and the payload's place are read out of the real rendered user data. The agent is the
product's; only its body is simulated: lanes run inline, S3 is the model's, trainers are objects.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.box.actions import Action
from orchestrator.box.agent import Agent, Host
from orchestrator.box.body import Body
from orchestrator.box.connection import Connection
from orchestrator.box.deadline import Clock
from orchestrator.box.lanes import Lane
from orchestrator.box.process import Place
from orchestrator.box.spec import BoxSpec, parse_spec
from orchestrator.box.store import Store
from tests.faults.trainer import Trainer, Written

_END_AT, _LIMIT = re.compile(r"end_at=(\d+)"), re.compile(r"limit_s=(\d+)")
_PAYLOAD, _BOX = re.compile(r"payload_key=(\S+)"), re.compile(r"--box (\S+)")
_BUCKET, _END = re.compile(r"bucket=(\S+)"), re.compile(r"--end-with (\S+)")
HARD_AFTER_S = 60.0
FETCH_PATIENCE_S = 300.0
# One tick may make news for the next: the real loop wakes up for them at once.
MOST_TICKS_AT_ONCE = 6


class Died(BaseException):
    """The machine under the box is gone, or nothing on it runs any more."""


class InlineLane(Lane):
    """Does its work before `start` returns."""

    def start(self, action: Action, work: Callable[[], object]) -> None:
        self._busy = True
        self._do(action, work)


class SimulatedConnection(Connection):
    """The real line to S3, over a client of the model's."""

    def __init__(self, region: str, client: Any) -> None:
        super().__init__(region)
        self._model = client

    def _connected(self) -> Any:
        return self._model


class SimulatedStore(Store):
    """The real store over a client of the model's."""

    def __init__(self, spec: BoxSpec, client: Any) -> None:
        super().__init__(spec.bucket, spec.region, spec.prefix)
        self._s3 = SimulatedConnection(spec.region, client)


class SimulatedBody(Body):
    """Everything that the agent does to the outside."""

    def __init__(self, box: Machine) -> None:
        self._machine = box

    def lane(self, name: str, wake: threading.Event) -> Lane:
        return InlineLane(name, wake)

    def store(self, spec: BoxSpec, *, fast: bool) -> Store:
        return SimulatedStore(spec, self._machine.client(fast=fast))

    def start(self, place: Place, command: list[str], env: Mapping[str, str]) -> Any:
        return self._machine.start_trainer(place, command, env)

    def end_leftover(self, place: Place) -> bool:
        return False

    def secrets(self, spec: BoxSpec) -> dict[str, str]:
        return {}

    def keep_stacks(self, place: Place, pid: int, now: float) -> None:
        pass

    def spot_notice(self) -> float | None:
        return self._machine.notice()

    def disk_free(self, root: Path) -> int:
        return 10**11

    def power_off(self, command: Sequence[str]) -> None:
        self._machine.power_off(command[0])


class Machine:
    """One instance's box. `true`: the world's time, epoch seconds; `skew_s`: its clock's error."""

    def __init__(
        self,
        instance_id: str,
        user_data: str,
        folder: Path,
        *,
        true: Callable[[], float],
        client: Callable[[str, bool], Any],
        switch: Callable[[str, str], None],
        note: Callable[[Written], None],
    ) -> None:
        self.instance_id, self.folder = instance_id, folder
        self._true, self._client, self._switch, self._note = true, client, switch, note
        self._read(user_data)
        self.booted_at: float | None = None
        self.skew_s = 0.0
        self.taken_at: float | None = None
        self.disk_full = self.wedged = self.off = False
        self.asked: Counter[str] = Counter()
        self.trainers: list[Trainer] = []
        self._told_off_at: float | None = None
        self._agent: Agent | None = None
        self.tick_s = 10.0
        self.attempt = 1
        self.looks = 0

    def _read(self, user_data: str) -> None:
        """What the rendered script arms and fetches."""
        self.name = _found(_BOX, user_data).strip("'\"")
        self._bucket, self._payload = _found(_BUCKET, user_data), _found(_PAYLOAD, user_data)
        self._end_at, self._limit_s = _number(_END_AT, user_data), _number(_LIMIT, user_data)
        self._end_with = _found(_END, user_data).strip("\"'")

    def client(self, *, fast: bool) -> Any:
        return self._client(self.name, fast)

    def wall(self) -> float:
        """What its clock says."""
        self.asked["clock"] += 1
        return self._true() + self.skew_s

    def is_full(self) -> bool:
        """Whether its disk has no room left."""
        self.asked["disk"] += 1
        return self.disk_full

    def notice(self) -> float | None:
        """When it will be taken, as far as it was told: epoch seconds."""
        self.asked["spot"] += 1
        return self.taken_at

    def boot(self) -> None:
        self.booted_at = self._true()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def step(self) -> None:
        """Everything that happens on the box at this moment. Raises Died."""
        if self.booted_at is None or self.wedged or self.off:
            return
        self._watch()
        for trainer in self.trainers:
            trainer.advance()
        if self._agent is None and not self._start_agent():
            return
        for _ in range(MOST_TICKS_AT_ONCE):
            self.looks += 1
            if self.off or self._agent is None or self._agent.tick():
                return
            if not any(lane.busy for lane in self._agent._lanes.values()):
                return

    def kill_trainers(self) -> None:
        for trainer in self.trainers:
            trainer.kill()

    def power_off(self, command: str) -> None:
        """The command that user data was rendered with; the machine's own opinion of it counts."""
        if self._told_off_at is None:
            self._told_off_at = self._true()
        self._switch(self.instance_id, command)

    def start_trainer(self, place: Place, command: list[str], env: Mapping[str, str]) -> Trainer:
        steps = int(command[-1].rpartition(" ")[2])
        trainer = Trainer(
            place,
            env["GPURUN_JOB"],
            steps,
            self._true,
            self._note,
            lambda: not self.is_full(),
        )
        self.trainers.append(trainer)
        return trainer

    def _watch(self) -> None:
        """The two watchers of user data: an absolute time, and so long after boot."""
        lived = self._true() - (self.booted_at or 0.0)
        over = self.wall() >= self._end_at or lived >= self._limit_s
        told = self._told_off_at
        if over or (told is not None and self._true() - told >= HARD_AFTER_S):
            self.power_off(self._end_with)

    def _start_agent(self) -> bool:
        """Fetch the payload, as user data does with bounded patience; False while it can't."""
        try:
            body = self.client(fast=False).get_object(Bucket=self._bucket, Key=self._payload)
        except (ClientError, BotoCoreError):
            if self._true() - (self.booted_at or 0.0) > FETCH_PATIENCE_S:
                self.power_off(self._end_with)
            return False
        with tarfile.open(fileobj=io.BytesIO(body["Body"].read())) as packed:
            told = packed.extractfile(f"boxes/{self.name}.json")
            spec = parse_spec(json.loads(told.read() if told else b"{}"))
        self.tick_s = spec.tick_s
        started = self._true()
        clock = Clock(spec.planned_at, self.wall, lambda: self._true() - started)
        host = Host(
            self.folder, (self._end_with,), None, self.instance_id, self.wall(), self.attempt
        )
        self._agent = Agent(spec, host, clock, SimulatedBody(self))
        self._agent.resume()
        return True


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    if match is None:
        raise AssertionError(f"the user data has no {pattern.pattern}")
    return match[1]


def _number(pattern: re.Pattern[str], text: str) -> float:
    return float(_found(pattern, text))
