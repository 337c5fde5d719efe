"""runs-on/runs-on#277: a spot notice, and the machine is shut down 95 seconds too early.

There: at the notice the tool powers the machine off at once, although AWS leaves it two minutes.
Here: a trainer hears of it at once, and its last checkpoint takes 50 s to write, for which it gets
the time. When S3 says no for most of the two minutes, the box goes on trying until 15 s before
their end, by the clock, and what it brings then is pulled.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.faults.fault import Kind
from tests.faults.strikes import NOTICE_S
from tests.faults.trainer import Trainer
from tests.incidents.scene import ONE_BOX, Scene, opened

SPOT = ONE_BOX.replace("instance: g6.xlarge", "instance: g6.xlarge, spot: true").replace(
    "sim 6", "sim 100"
)
BEGAN_S, SAVES_S, REFUSES_S, LEFT_S = 200.0, 50.0, 90.0, 15.0


class Slow(Trainer):
    """Writes its checkpoint so long after it was told to stop."""

    told_at = 0.0

    def advance(self) -> None:
        if self._told and not self.told_at:
            self.told_at = self.now()
        if not self._told or self.now() - self.told_at >= SAVES_S:
            super().advance()


def noticed(scene: Scene) -> None:
    scene.launched()
    scene.wait(BEGAN_S)
    scene.world.strikes._strike_box(scene.world.box("one"), Kind.SPOT_TAKEN)


def test_a_checkpoint_that_takes_most_of_a_minute_is_waited_for_and_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.faults.machine.Trainer", Slow)
    with opened(SPOT) as scene:
        noticed(scene)
        told_at = scene.world.time.now()
        scene.wait(NOTICE_S + 60)
        (box,) = scene.instances()
        (job,) = scene.controller().look().jobs
        assert (job.state, job.reason[:11]) == ("cut", "spot notice")
        assert box.ended_at is not None
        assert box.ended_at - told_at >= timedelta(seconds=SAVES_S)
        scene.pull()
        last = scene.world.written[-2:]
        assert last[1].at - told_at.timestamp() >= SAVES_S
        assert [scene.pulled("train", each.name) for each in last] == [each.data for each in last]


def test_a_box_that_s3_refuses_tries_until_the_last_seconds() -> None:
    with opened(SPOT) as scene:
        noticed(scene)
        told_at = scene.world.time.now()
        (box,) = scene.instances()
        scene.world.strikes.refusing[box.id] = scene.world.time.monotonic() + REFUSES_S
        scene.wait(REFUSES_S)
        assert box.ended_at is None  # nothing is in yet, and half a minute is left
        scene.wait(NOTICE_S)
        assert box.ended_at is not None
        assert box.ended_at - told_at >= timedelta(seconds=REFUSES_S)
        scene.pull()
        newest = scene.world.written[-1]
        assert scene.pulled("train", newest.name) == newest.data


def test_without_any_s3_the_box_isnt_given_up_before_15_seconds_are_left() -> None:
    with opened(SPOT) as scene:
        noticed(scene)
        told_at = scene.world.time.now()
        (box,) = scene.instances()
        scene.world.strikes.refusing[box.id] = float("inf")
        scene.wait(NOTICE_S - LEFT_S - 5)
        assert box.ended_at is None
        scene.wait(60)
        assert box.ended_at is not None
        assert NOTICE_S - LEFT_S <= (box.ended_at - told_at).total_seconds() <= NOTICE_S + 30
