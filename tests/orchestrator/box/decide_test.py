"""Decisions of the agent: what is known and the time in, actions out. No process, no S3."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.box.actions import (
    Action,
    Install,
    Listen,
    Mark,
    Poll,
    PowerOff,
    Prepare,
    Report,
    Start,
    Stop,
    Sync,
)
from orchestrator.box.decide import decide
from orchestrator.box.spec import parse_spec
from orchestrator.box.state import Job, State
from orchestrator.box.verdict import backoff_s, keeps_all, verdict

T0, DRAIN, OFF = 1000.0, 2000.0, 2900.0


def box(*jobs: dict[str, Any], **changes: Any) -> State:
    """A box that has just reported, so that only what a test is about is due."""
    base: dict[str, Any] = {
        **dict.fromkeys(("run", "box", "bucket", "region", "prefix"), "x"),
        "format": 1,
        "planned_at": T0,
        "drain_at": DRAIN,
        "poweroff_at": OFF,
        "loss_bound_s": 300,
        "tick_s": 10,
        "price_usd_per_hour": "1",
        "pins": {"cpu": {"file": "pins/cpu.txt", "sha256": "0", "gpu": False}},
    }
    one = {"needs": [], "inputs": {}, "results": ["out"], "retries": 1}
    state = State.of(parse_spec(base | changes | {"jobs": [one | job for job in jobs]}))
    state.reported_at, state.listened_at = T0, OFF
    return state


def actions(state: State, now: float = T0) -> list[Action]:
    return decide(state, now)


def running(state: State, name: str = "a") -> Job:
    job = state.jobs[name]
    job.state, job.attempt, job.prepared, job.alive = "running", 1, True, True
    job.sync_began_at = T0
    return job


def test_a_new_job_is_first_marked_then_prepared_then_started() -> None:
    state = box({"name": "a"})
    assert actions(state) == [Mark("a", "installing")]
    state.jobs["a"].state = "installing"
    assert actions(state) == [Prepare("a")]
    state.busy = frozenset({"fetch"})
    assert actions(state) == []
    state.jobs["a"].prepared = True
    assert actions(state) == [Start("a")]


def test_pins_are_installed_before_the_job_and_for_the_next_job_while_one_runs() -> None:
    pins = {name: {"file": name, "sha256": "0", "gpu": False} for name in ("cpu", "gpu")}
    state = box({"name": "a", "pins": "cpu"}, {"name": "b", "pins": "gpu"}, pins=pins)
    state.jobs["a"].state, state.jobs["a"].prepared = "installing", True
    assert actions(state) == [Install("cpu")]
    state.pins["cpu"].state = "ready"
    running(state)
    assert actions(state) == [Install("gpu")]


def test_pins_that_cant_be_installed_fail_their_jobs_and_no_others() -> None:
    state = box({"name": "a", "pins": "cpu"}, {"name": "b", "retries": 0})
    state.pins["cpu"].state, state.pins["cpu"].why = "broken", "no wheel"
    assert actions(state) == [Mark("a", "failed", "no wheel")]
    state.jobs["a"].state = state.jobs["a"].outcome = "failed"
    assert actions(state) == [Mark("b", "installing")]


def test_one_job_runs_at_a_time_in_the_order_of_needs() -> None:
    state = box({"name": "b", "needs": ["a"]}, {"name": "a"})
    assert actions(state) == [Mark("a", "installing")]
    running(state)
    assert actions(state) == []
    a = state.jobs["a"]
    a.alive, a.outcome, a.state = False, "done", "syncing"
    assert actions(state) == [Mark("b", "installing"), Sync("a", final=True)]


@pytest.mark.parametrize("word", ["failed", "cut", "blocked"])
def test_a_job_is_blocked_by_a_job_that_didnt_end_well(word: str) -> None:
    state = box({"name": "a", "needs": ["far"]})
    assert actions(state) == [Poll()]
    state.remote["far"] = word
    assert actions(state) == [Mark("a", "blocked", f"far is {word}")]


def test_a_job_waits_for_another_box_without_asking_all_the_time() -> None:
    state = box({"name": "a", "needs": ["far"]})
    state.polled_at = T0
    assert actions(state, T0 + 1) == []
    assert Poll() in actions(state, T0 + 5)


def test_results_are_synced_each_half_loss_bound_and_at_each_new_checkpoint() -> None:
    state = box({"name": "a"})
    job = running(state)
    state.reported_at = T0 + 200
    assert actions(state, T0 + 149) == []
    assert actions(state, T0 + 150) == [Sync("a", final=False)]
    job.checkpoints = frozenset({"out/checkpoint-5"})
    assert actions(state, T0 + 1) == [Sync("a", final=False)]
    job.synced_checkpoints = job.checkpoints
    assert actions(state, T0 + 1) == []


def test_a_sync_that_failed_waits_and_a_second_one_never_starts_beside_the_first() -> None:
    state = box({"name": "a"})
    job = running(state)
    job.alive, job.outcome, job.state = False, "done", "syncing"
    state.busy = frozenset({"sync a"})
    assert actions(state) == []
    state.busy, job.sync_after = frozenset(), T0 + 4
    assert actions(state, T0 + 3) == []
    assert actions(state, T0 + 4) == [Sync("a", final=True)]
    assert [backoff_s(n) for n in (1, 2, 3, 9)] == [1, 2, 4, 30]


def test_in_a_drain_a_sync_is_tried_again_every_five_seconds() -> None:
    state = box({"name": "a"})
    job = running(state)
    job.alive, job.outcome, job.state = False, "cut", "syncing"
    job.sync_began_at, job.sync_after, state.reported_at = DRAIN, DRAIN + 30, DRAIN
    assert actions(state, DRAIN + 4) == []
    assert actions(state, DRAIN + 5) == [Sync("a", final=True)]
    job.sync_began_at, job.sync_after = DRAIN - 20, DRAIN + 10
    assert Sync("a", final=True) not in actions(state, DRAIN - 1)


def test_a_finished_job_is_flushed_before_a_running_one_is_synced() -> None:
    state = box({"name": "a"}, {"name": "b"})
    running(state, "b").sync_began_at = 0
    a = running(state)
    a.alive, a.outcome, a.state = False, "done", "syncing"
    assert Sync("a", final=True) in actions(state)


def test_the_deadline_stops_the_running_job_once_and_cuts_the_waiting_ones() -> None:
    state = box({"name": "a"}, {"name": "b"})
    job = running(state)
    state.reported_at = job.sync_began_at = DRAIN
    assert actions(state, DRAIN - 1) == []
    assert actions(state, DRAIN) == [
        Stop("a", hard=False, why="told to stop at the deadline"),
        Mark("b", "cut", "the deadline came before it started"),
    ]
    job.told = "told to stop"
    state.jobs["b"].state = state.jobs["b"].outcome = "cut"
    assert actions(state, DRAIN + 1) == []


def test_a_box_asks_once_a_tick_whether_to_stop_and_no_more_once_it_drains() -> None:
    state = box({"name": "a"})
    running(state)
    state.listened_at = T0 - 10
    assert actions(state) == [Listen()]
    state.busy = frozenset({"listen"})
    assert actions(state) == []
    state.busy, state.listened_at = frozenset(), T0 - 9
    assert actions(state) == []
    assert Listen() not in actions(state, DRAIN)


def test_a_box_that_is_told_to_stop_drains_as_it_would_at_its_deadline() -> None:
    state = box({"name": "a"}, {"name": "b"})
    job = running(state)
    state.stop(state.deadlines.from_now(T0))
    assert actions(state) == [
        Stop("a", hard=False, why="told to stop"),
        Mark("b", "cut", "the box was told to stop before it started"),
    ]
    job.told = "told to stop"
    assert verdict(job, 0) == ("cut", "told to stop")
    assert Stop("a", hard=True, why="told to stop") in actions(state, T0 + (OFF - DRAIN) / 2)
    assert PowerOff() in actions(state, T0 + (OFF - DRAIN))


def test_a_box_that_is_told_to_stop_while_it_drains_goes_on_as_it_was() -> None:
    state = box({"name": "a"})
    before = state.deadlines
    state.stop(state.deadlines.from_now(DRAIN + 5))
    assert (state.deadlines, state.told) == (before, "")


def test_a_deaf_job_is_killed_while_half_the_drain_is_left_for_the_flush() -> None:
    state = box({"name": "a"})
    job = running(state)
    state.reported_at = job.sync_began_at = DRAIN
    job.told = "told to stop"
    half, kill = (DRAIN + OFF) / 2, Stop("a", hard=True, why="told to stop at the deadline")
    assert kill not in actions(state, half - 1)
    assert kill in actions(state, half)
    job.killed = True
    assert kill not in actions(state, half)


def test_a_box_whose_jobs_have_all_ended_says_so_and_powers_off() -> None:
    state = box({"name": "a"})
    state.jobs["a"].state = "done"
    assert actions(state, T0 + 10) == [Report("off", log=True)]
    state.off_reported = True
    assert actions(state, T0 + 10) == [PowerOff()]


def test_a_box_that_cant_say_goodbye_tries_on_but_never_past_its_power_off() -> None:
    state = box({"name": "a"})
    state.jobs["a"].state, state.off_tries = "done", 9
    assert PowerOff() not in actions(state, T0 + 10)
    assert actions(state, state.deadlines.flush_by) == [PowerOff()]
    state.off_tries, state.busy = 0, frozenset({"report"})
    assert actions(state, OFF) == [PowerOff()]


def test_a_box_leaves_in_time_even_if_a_job_is_not_flushed() -> None:
    state = box({"name": "a"})
    job = running(state)
    job.alive, job.outcome, job.state = False, "cut", "syncing"
    state.busy = frozenset({"sync a"})
    assert actions(state, state.deadlines.flush_by) == []
    half_way = (state.deadlines.flush_by + OFF) / 2
    assert actions(state, half_way) == [Report("off", log=True)]
    assert actions(state, OFF) == [PowerOff()]


def syncs(state: State, now: float) -> list[Action]:
    return [action for action in actions(state, now) if isinstance(action, Sync)]


def test_new_lines_are_committed_in_time_while_a_long_upload_of_the_same_job_goes_on() -> None:
    state = box({"name": "a"}, {"name": "b"})
    running(state)
    state.busy = frozenset({"sync a"})
    assert syncs(state, T0 + 149) == []
    assert syncs(state, T0 + 150) == [Sync("a", final=False, quick=True)]
    state.jobs["a"].quick_began_at = T0 + 150
    assert syncs(state, T0 + 299) == []
    state.busy = frozenset({"sync a", "quick a"})
    assert syncs(state, T0 + 300) == []


def test_what_one_job_uploads_keeps_no_other_job_waiting() -> None:
    state = box({"name": "a"}, {"name": "b"})
    a, _ = running(state), running(state, "b")
    a.alive, a.outcome, a.state = False, "done", "syncing"
    state.busy = frozenset({"sync a", "quick a"})
    assert syncs(state, T0 + 150) == [Sync("b", final=False)]


@pytest.mark.parametrize(
    "code, program, failures, told, outcome",
    [
        (0, None, 0, False, "done"),
        (1, None, 0, False, "running"),
        (-9, None, 0, False, "running"),
        (1, None, 1, False, "failed"),
        (2, "grpo", 0, False, "failed"),
        (2, None, 0, False, "running"),
        (0, None, 0, True, "cut"),
        (143, None, 0, True, "cut"),
    ],
)
def test_how_a_process_ends_says_how_its_job_ends(
    code: int, program: str | None, failures: int, told: bool, outcome: str
) -> None:
    job = box({"name": "a", "program": program}).jobs["a"]
    job.failures, job.told = failures, "told to stop" if told else ""
    assert verdict(job, code)[0] == outcome


@pytest.mark.parametrize(
    "missing, paths", [(["oot"], "path oot was"), (["oot", "log"], "paths oot, log were")]
)
def test_a_job_that_ends_well_without_its_results_has_failed_for_good(
    missing: list[str], paths: str
) -> None:
    job = box({"name": "a", "results": ["oot", "log", "out"], "retries": 3}).jobs["a"]
    said = f"result {paths} never made; kept the whole work folder instead"
    assert verdict(job, 0, missing) == ("failed", said)
    assert verdict(job, 1, missing)[0] == "running"
    job.told = "told to stop"
    assert verdict(job, 0, missing) == ("cut", "told to stop")


@pytest.mark.parametrize(
    "outcome, code, missing, all_of_it",
    [
        ("failed", 0, ["oot"], True),
        ("done", 0, [], False),
        ("failed", 1, ["oot"], False),
        ("cut", 0, ["oot"], False),
        ("failed", 1, ["oot", "out"], True),
        ("cut", -15, ["oot", "out"], True),
    ],
)
def test_what_is_kept_of_a_job_without_its_results(
    outcome: str, code: int, missing: list[str], all_of_it: bool
) -> None:
    job = box({"name": "a", "results": ["oot", "out"]}).jobs["a"]
    job.exit_code = code
    assert keeps_all(job, outcome, missing) is all_of_it
