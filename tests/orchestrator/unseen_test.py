"""What was just made may not show: who makes it says so, who takes it down waits that long."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from orchestrator.aws.bucket import Bucket
from orchestrator.aws.session import Session
from orchestrator.errors import LaunchError
from orchestrator.run import Event, EventKind, RunLog, RunRecord
from orchestrator.unseen import announce, unseen_for
from tests.fake_clock import FakeClock
from tests.faults.life import the_plan
from tests.faults.strikes import Strikes
from tests.faults.world import World

NOW = FakeClock().now()
AWS = Session("aws", "us-east-1", "123456789012")
MADE = (EventKind.BUILDING, EventKind.LAUNCHING, EventKind.LAUNCHED, EventKind.ARMED)


def record(created_s_ago: float = 86_400) -> RunRecord:
    return RunRecord(
        run_id="life-261201-200000-aaaa",
        owner="me@here",
        created_at=NOW - timedelta(seconds=created_s_ago),
        plan=the_plan(),
        bucket="b",
        root_device="/dev/sda1",
        root_snapshot_gb=8,
        payload_sha256="0",
        ssh_cidr=None,
        ssh_host_key="ssh-ed25519 A",
        poweroff_command="poweroff",
    )


def wait_s(*events: tuple[EventKind, float], created_s_ago: float = 86_400) -> float:
    """`events`: kinds, and how many seconds ago."""
    log = [
        Event(seq=n, at=NOW - timedelta(seconds=ago), kind=kind)
        for n, (kind, ago) in enumerate(events, 1)
    ]
    return unseen_for(AWS, record(created_s_ago), log, NOW).total_seconds()


@pytest.mark.parametrize("kind", MADE)
def test_a_minute_after_the_last_that_was_made(kind: EventKind) -> None:
    assert wait_s((EventKind.BUILDING, 500), (kind, 20), (EventKind.TEARING_DOWN, 5)) == 40


@pytest.mark.parametrize("kind", sorted(set(EventKind) - set(MADE)))
def test_what_makes_nothing_isnt_waited_for(kind: EventKind) -> None:
    assert wait_s((EventKind.ARMED, 60), (kind, 0)) == 0


def test_what_secrets_were_lent_in_is_as_old_as_the_record() -> None:
    assert wait_s(created_s_ago=10) == 50


def test_a_clock_that_is_ahead_elsewhere_makes_nobody_wait_for_long() -> None:
    assert wait_s((EventKind.LAUNCHED, -7200)) == 60


def test_the_local_cloud_shows_everything_at_once() -> None:
    local = Session("local", "us-east-1", "123456789012")
    assert unseen_for(local, record(0), [], NOW) == timedelta(0)


@pytest.fixture
def log() -> Iterator[RunLog]:
    world = World(Strikes())
    world.cloud.add_bucket("b", owner="123456789012")
    yield RunLog(Bucket(world.session(), "b"), "life-261201-200000-aaaa")
    world.close()


def test_each_act_is_announced_at_most_a_quarter_minute_before(log: RunLog) -> None:
    clock = FakeClock()
    for wait in (0, 14.9, 0.1, 14, 300):
        clock.sleep(wait)
        announce(log, clock)
    ages = [(clock.now() - event.at).total_seconds() for event in log.read()]
    assert ages == [329, 314, 0]


def test_nothing_is_made_once_the_run_is_being_taken_down(log: RunLog) -> None:
    clock = FakeClock()
    announce(log, clock)
    log.append(EventKind.TEARING_DOWN, clock.now())
    with pytest.raises(LaunchError, match="being taken down"):
        announce(log, clock)
