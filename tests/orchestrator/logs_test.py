"""A job's log as `gpurun logs` shows it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
import typer
from moto.ec2.models import ec2_backends

from orchestrator import cli, logs, opened
from orchestrator.aws.bucket import Bucket
from orchestrator.errors import ResultsMissing
from orchestrator.logs import read_logs
from orchestrator.opened import Opened
from orchestrator.run import EventKind, RunRecord

from .runner_test import Clock, another, begun, clock, rules, session

__all__ = ["begun", "clock", "rules", "session"]


def test_an_empty_log_is_a_log_and_none_is_told_from_it(begun: tuple[Bucket, RunRecord]) -> None:
    bucket, record = begun
    opened = Opened(bucket.session, bucket, record)
    with pytest.raises(ResultsMissing, match="no log yet"):
        list(read_logs(opened, "count", follow=False))
    sha256 = hashlib.sha256(b"").hexdigest()
    said = {"format": 1, "run": record.run_id, "job": "count", "seq": 1, "attempt": 1, "at": 1.0}
    said |= {"step": None, "final": False}
    said |= {"files": {"log.txt": {"sha256": sha256, "size": 0, "mode": 0o644}}}
    base = f"runs/{record.run_id}/jobs/count"
    bucket.put(f"{base}/blobs/{sha256}", b"")
    bucket.put(f"{base}/manifests/000001.json", json.dumps(said).encode())
    assert list(read_logs(opened, "count", follow=False)) == []


@dataclass
class Follower:
    """`gpurun logs RUN count -f`, on the test's clock; `at_wait` is what happens meanwhile."""

    opened: Opened
    clock: Clock
    waits: int = 0
    at_wait: Callable[[int], None] = lambda _: None

    def now(self) -> datetime:
        return self.clock.now()

    def sleep(self, seconds: float) -> None:
        self.waits += 1
        assert self.waits < 20, "it follows what has ended"
        self.clock.at += timedelta(seconds=seconds)
        self.at_wait(self.waits)

    def follow(self) -> None:
        with pytest.raises(ResultsMissing, match="no log yet"):
            list(read_logs(self.opened, "count", follow=True))


@pytest.fixture
def follower(
    begun: tuple[Bucket, RunRecord], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> Follower:
    bucket, record = begun
    found = Follower(Opened(bucket.session, bucket, record), clock)
    for module in (logs, opened):
        monkeypatch.setattr(module, "SystemClock", lambda: found)
    return found


def test_following_ends_with_a_run_whose_box_was_never_launched(
    follower: Follower, begun: tuple[Bucket, RunRecord], clock: Clock
) -> None:
    runner = another(begun[0].session, begun, clock)
    follower.at_wait = lambda waits: runner.finish() if waits == 3 else None
    follower.follow()
    assert follower.waits == 3


def test_following_ends_with_a_teardown_that_left_something(follower: Follower) -> None:
    runner = follower.opened.runner()
    runner.log.append(EventKind.TEARING_DOWN, follower.now())
    follower.follow()
    assert follower.waits == 0


@pytest.mark.parametrize("launched", [True, False])
def test_following_ends_with_the_run_s_time_when_no_controller_notes_its_end(
    follower: Follower, begun: tuple[Bucket, RunRecord], clock: Clock, launched: bool
) -> None:
    if launched:
        another(begun[0].session, begun, clock).launch_all()
        ec2_backends["123456789012"]["us-east-1"].reservations.clear()

    def later(waits: int) -> None:
        if waits == 3:
            clock.at = begun[1].expires_at + timedelta(minutes=11)

    follower.at_wait = later
    follower.follow()
    assert follower.waits == 3


def test_a_job_that_lost_its_spot_box_is_followed_into_the_next(
    follower: Follower, begun: tuple[Bucket, RunRecord]
) -> None:
    def says(state: str, reason: str) -> None:
        status = json.dumps({"job": "count", "state": state, "reason": reason})
        begun[0].put(f"runs/{begun[1].run_id}/jobs/count/status.json", status.encode())

    says("cut", "spot notice: terminate")
    follower.at_wait = lambda waits: says("done", "") if waits == 3 else None
    follower.follow()
    assert follower.waits == 3


def test_a_job_that_the_run_does_not_have_is_bad_input_and_its_jobs_are_named(
    begun: tuple[Bucket, RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, record = begun
    monkeypatch.setattr(cli, "_open", lambda *_: Opened(bucket.session, bucket, record))
    with pytest.raises(typer.BadParameter, match="no job 'nojob'; its jobs: count") as told:
        cli.logs(record.run_id, "nojob")
    assert told.value.exit_code == 2
