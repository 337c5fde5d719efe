"""Controllers of one run in an account behind the strict rules, on a clock that waiting moves.

No agent is behind an instance: tests say what the boxes would have said, and what befalls them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
from moto.ec2.models import ec2_backends

from orchestrator.aws.boxes import BoxRecord, find_boxes
from orchestrator.aws.bucket import Bucket
from orchestrator.aws.session import Session
from orchestrator.aws.stack import leftovers
from orchestrator.aws.waits import Patience
from orchestrator.catalog import load_catalog
from orchestrator.localcloud.strict import StrictRules
from orchestrator.plan import make_plan
from orchestrator.run import Event, EventKind, RunRecord
from orchestrator.runbook import load_runbook
from orchestrator.runner import Runner
from orchestrator.start import start_run

ACCOUNT, REGION = "123456789012", "us-east-1"
TAKEN = "Server.SpotInstanceTermination"
OFF = "Client.InstanceInitiatedShutdown"
HAND = "Client.UserInitiatedShutdown"
RUNBOOK = """
name: luck
cap_usd: {cap}
regions: [us-east-1]
results_gb: 0.1
boxes:
  one: {{instance: g6.xlarge, hours: 2h, drain: 10m, cloud_margin: 5m, spot: {spot}}}
{more}jobs:
  count: {{box: one, command: "true", results: [out], retries: {retries}}}
"""
TWO = "  two: {instance: g6.xlarge, hours: 6h, drain: 10m, cloud_margin: 5m}\n"
OTHER = '  other: {box: two, command: "true", results: [out]}\n'


@dataclass
class Clock:
    """Time that passes only while somebody waits; `at_wait` is what happens meanwhile."""

    at: datetime = datetime(2026, 12, 1, 20, 0, tzinfo=UTC)
    at_wait: Callable[[], None] = lambda: None
    wrong_by: timedelta = timedelta()
    """How far what the controller reads is from the truth."""

    def now(self) -> datetime:
        return self.at + self.wrong_by

    def true(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self.at_wait()


@dataclass
class World:
    """An account with one run in it."""

    rules: StrictRules
    clock: Clock
    folder: Path
    clients: dict[Any, Any]
    bucket: Bucket = field(init=False)
    record: RunRecord = field(init=False)

    def __post_init__(self) -> None:
        patience = Patience(sleep=self.clock.sleep, clock=self.clock.monotonic)
        boto = self.clients.setdefault("boto", boto3.Session())
        self.session = Session(
            "aws", REGION, ACCOUNT, patience=patience, boto=boto, clients=self.clients
        )

    def begin(
        self, *, cap: str = "5", spot: bool = False, retries: int = 1, two: bool = False
    ) -> None:
        """Put the run on record; nothing is built yet. `two`: with a box that lives for longer."""
        path = self.folder / "luck.yaml"
        text = RUNBOOK.format(
            cap=cap, spot=str(spot).lower(), retries=retries, more=TWO if two else ""
        )
        path.write_text(text + (OTHER if two else ""))
        plan = make_plan(
            load_runbook(path), now=self.clock.now(), catalog=load_catalog(), cloud="local"
        )
        self.bucket, self.record = start_run(
            self.session, plan, self.clock, boxes_are_processes=False
        )

    def controller(self) -> Runner:
        """One that knows what the bucket knows."""
        return Runner(self.session, self.bucket, self.record, self.clock)

    def instances(self) -> list[BoxRecord]:
        return find_boxes(self.session, self.record.run_id)

    def alive(self) -> list[BoxRecord]:
        return [box for box in self.instances() if box.alive]

    def end(self, reason: str) -> None:
        """EC2 ends whatever lives, and says why."""
        for box in self.alive():
            self.session.client("ec2").terminate_instances(InstanceIds=[box.instance_id])
            state = self._moto.get_instance(box.instance_id).state_reason
            state.code = state.message = reason

    def forget(self) -> None:
        """EC2 no longer lists what there was, as an hour after its end."""
        self.end(TAKEN)
        self._moto.reservations.clear()

    def says(self, state: str, reason: str = "") -> None:
        """The job's status as its agent writes it."""
        base = f"runs/{self.record.run_id}/jobs/count"
        status = {"job": "count", "box": "one", "state": state, "reason": reason, "attempt": 1}
        self.bucket.put(f"{base}/status.json", json.dumps(status).encode())
        if state == "done":
            self.bucket.put(f"{base}/COMPLETE", json.dumps({"state": "done"}).encode())

    def finishes(self) -> None:
        """The box does its jobs and powers itself off."""
        self.says("done")
        self.end(OFF)

    def status(self) -> dict[str, Any]:
        found = self.bucket.get(f"runs/{self.record.run_id}/jobs/count/status.json")
        return dict(json.loads(found or b"{}"))

    def events(self, kind: EventKind) -> list[Event]:
        return [event for event in self.controller().log.read() if event.kind is kind]

    def money(self) -> dict[str, Decimal]:
        """What each box's line was settled at; nothing may be open any more."""
        ledger = self.controller().books.ledger()
        assert ledger.reserved == {}
        assert ledger.settled_usd <= self.record.plan.cap_usd
        return {k: v for k, v in ledger.settled.items() if not k.startswith("s3:")}

    def left(self) -> list[str]:
        return [f"{item.kind} {item.id}" for item in leftovers(self.session, self.record.run_id)]

    @property
    def _moto(self) -> Any:
        return ec2_backends[ACCOUNT][REGION]
