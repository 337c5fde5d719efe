"""What the agent makes of work that ended, well or not."""

from __future__ import annotations

import pytest

from orchestrator.box.actions import Install, Listen, Poll, Prepare, Report, Sync
from orchestrator.box.connection import StoreDown
from orchestrator.box.fold import fold
from orchestrator.box.inputs import InputMissing
from orchestrator.box.install import InstallFailed, NoGpu
from orchestrator.box.lanes import Outcome
from orchestrator.box.rounds import Synced
from orchestrator.box.spec import parse_spec
from orchestrator.box.state import State
from orchestrator.box.work import Prepared

from .rig import box_spec

NOW = 1000.0
JOB = {"name": "a", "needs": ["far"], "inputs": {}, "results": ["out"], "retries": 1}
PINS = {"gpu": {"file": "pins/gpu.txt", "sha256": "0", "gpu": True}}


@pytest.fixture
def state() -> State:
    return State.of(parse_spec(box_spec(jobs=[JOB], pins=PINS)))


def test_a_missing_gpu_breaks_the_pins_at_once_and_a_failed_install_the_second_time(
    state: State,
) -> None:
    pinned = state.pins["gpu"]
    fold(state, Outcome(Install("gpu"), None, InstallFailed("no room")), NOW)
    assert (pinned.state, pinned.not_before) == ("absent", NOW + 1)
    fold(state, Outcome(Install("gpu"), None, InstallFailed("no room")), NOW)
    assert (pinned.state, pinned.why) == ("broken", "no room")
    pinned.state, pinned.tries = "absent", 0
    fold(state, Outcome(Install("gpu"), None, NoGpu("no driver")), NOW)
    assert (pinned.state, pinned.why) == ("broken", "no driver")


@pytest.mark.parametrize(
    "error, tries",
    [
        (StoreDown("away"), 0),
        (InputMissing("none"), 3),
        (OSError("full"), 1),
        (ValueError("x"), 1),
    ],
)
def test_an_s3_that_is_away_is_waited_for_and_everything_else_runs_out_of_tries(
    state: State, error: Exception, tries: int
) -> None:
    job = state.jobs["a"]
    fold(state, Outcome(Prepare("a"), None, error), NOW)
    assert (job.prepare_tries, job.prepare_after, job.reason) == (tries, NOW + 1, str(error))
    assert not job.prepared


def test_a_prepared_job_goes_on_with_its_attempts_or_is_done_already(state: State) -> None:
    job = state.jobs["a"]
    assert fold(state, Outcome(Prepare("a"), Prepared(2, None), None), NOW) is job
    assert (job.prepared, job.attempt, job.state) == (True, 2, "waiting")
    done = {"attempt": 3, "metrics": {"rise": 0.2}, "unknown": 1}
    fold(state, Outcome(Prepare("a"), Prepared(0, done), None), NOW)
    assert (job.state, job.attempt, job.metrics) == ("done", 3, {"rise": 0.2})


def test_a_job_has_ended_only_with_a_whole_final_sync(state: State) -> None:
    job = state.jobs["a"]
    job.state, job.outcome, job.sync_began_at = "syncing", "done", NOW - 5
    fold(state, Outcome(Sync("a", final=False), Synced(1, True, ()), None), NOW)
    assert (job.state, job.manifest_seq, job.synced_at) == ("syncing", 1, NOW - 5)
    fold(state, Outcome(Sync("a", final=True), Synced(2, False, ()), None), NOW)
    assert (job.state, job.sync_after) == ("syncing", NOW + 1)
    job.synced_checkpoints = frozenset({"out/checkpoint-5"})
    fold(state, Outcome(Sync("a", final=True), None, StoreDown("away")), NOW)
    assert (job.state, job.sync_after, job.synced_checkpoints) == ("syncing", NOW + 2, frozenset())
    assert fold(state, Outcome(Sync("a", final=True), Synced(3, True, ()), None), NOW) is job
    assert job.state == "done"


def test_a_goodbye_counts_only_when_it_was_heard(state: State) -> None:
    fold(state, Outcome(Report("off", log=True), None, StoreDown("away")), NOW)
    assert (state.off_reported, state.off_tries) == (False, 1)
    fold(state, Outcome(Report("off", log=True), {}, None), NOW)
    assert state.off_reported


def test_news_of_other_boxes_is_kept_and_no_news_changes_nothing(state: State) -> None:
    fold(state, Outcome(Poll(), {"far": "running"}, None), NOW)
    fold(state, Outcome(Poll(), None, StoreDown("away")), NOW)
    assert state.remote == {"far": "running"}


@pytest.mark.parametrize(
    "value, error", [(False, None), (None, StoreDown("away")), (None, OSError("x"))]
)
def test_only_a_stop_that_was_seen_brings_the_drain_forward(
    state: State, value: object, error: Exception | None
) -> None:
    before = state.deadlines
    fold(state, Outcome(Listen(), value, error), NOW)
    assert (state.deadlines, state.told) == (before, "")
    fold(state, Outcome(Listen(), True, None), NOW)
    assert (state.deadlines.drain_at, state.told) == (NOW, "told to stop")
