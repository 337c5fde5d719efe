"""Frozen trainers: found by their steps alone, written down, ended, and tried again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.box.actions import Action, KeepStacks, Stop
from orchestrator.box.decide import decide
from orchestrator.box.fold import fold
from orchestrator.box.lanes import Outcome
from orchestrator.box.process import Place, Process
from orchestrator.box.progress import Progress
from orchestrator.box.spec import parse_spec
from orchestrator.box.stacks import catches, keep_stacks
from orchestrator.box.state import Job, State
from orchestrator.box.stopping import FROZEN_GRACE_S, STACKS_S
from orchestrator.box.verdict import verdict

from .rig import Rig, box_spec, until

STALL = 100.0
WHY = "frozen: no new step for 100 s, its stacks are in stacks.txt"


def box(**changes: Any) -> tuple[State, Job]:
    """A job that runs since steady second 0 on a box that has nothing else to do."""
    job = {"name": "a", "needs": [], "inputs": {}, "results": ["out"], "retries": 1}
    spec = box_spec(drain_at=9e9, poweroff_at=9e9 + 900, jobs=[job | {"stall_s": STALL} | changes])
    state = State.of(parse_spec(spec))
    state.reported_at = state.listened_at = 9e9
    one = state.jobs["a"]
    one.state, one.attempt, one.prepared, one.alive = "running", 1, True, True
    one.sync_began_at = 9e9
    one.begins(0.0)
    return state, one


def at(state: State, steady: float) -> list[Action]:
    state.steady = steady
    return decide(state, 1000.0)


def test_a_job_without_a_new_step_is_written_down_then_asked_to_end_then_killed() -> None:
    state, job = box()
    assert at(state, STALL - 1) == []
    assert at(state, STALL) == [KeepStacks("a")]
    job.frozen_at, state.busy = STALL, frozenset({"stacks"})
    assert at(state, STALL + STACKS_S - 1) == []
    fold(state, Outcome(KeepStacks("a"), None, None), 1000.0)
    assert at(state, STALL + 3) == [Stop("a", hard=False, why=WHY, frozen=True)]
    job.stops(WHY, STALL + 3, frozen=True, hard=False)
    assert at(state, STALL + 3 + FROZEN_GRACE_S - 1) == []
    assert at(state, STALL + 3 + FROZEN_GRACE_S) == [Stop("a", hard=True, why=WHY, frozen=True)]
    job.stops(WHY, STALL + 33, frozen=True, hard=True)
    assert at(state, STALL + 99) == []


@pytest.mark.parametrize("error", [None, OSError("disk full")])
def test_stacks_that_cant_be_kept_dont_keep_a_frozen_job_alive(error: Exception | None) -> None:
    state, job = box()
    job.frozen_at, state.busy = STALL, frozenset({"stacks"})
    if error:
        fold(state, Outcome(KeepStacks("a"), None, error), 1000.0)
        assert at(state, STALL + 1) == [Stop("a", hard=False, why=WHY, frozen=True)]
    assert at(state, STALL + STACKS_S) == [Stop("a", hard=False, why=WHY, frozen=True)]


def test_a_lane_that_hangs_since_the_last_time_holds_nothing_up() -> None:
    state, _ = box()
    state.busy = frozenset({"stacks"})
    assert at(state, STALL) == [Stop("a", hard=False, why=WHY, frozen=True)]


def test_a_step_that_comes_while_the_stacks_are_taken_spares_the_job() -> None:
    state, job = box()
    job.frozen_at, job.stacks_kept = STALL, True
    job.moved(STALL + 1)
    assert at(state, STALL + 50) == []
    assert at(state, 2 * STALL + 1) == [KeepStacks("a")]


def test_a_job_without_a_limit_is_never_judged() -> None:
    state, _ = box(stall_s=None)
    assert at(state, 1e9) == []


def test_the_deadline_ends_a_frozen_job_as_any_other() -> None:
    state, job = box()
    job.stops(WHY, 0, frozen=True, hard=False)
    state.steady = 1e6
    kinds = [action for action in decide(state, 9e9) if isinstance(action, Stop)]
    assert kinds == [Stop("a", hard=False, why="told to stop at the deadline")]
    job.stops("told to stop at the deadline", 0, frozen=False, hard=False)
    assert verdict(job, 143) == ("cut", "told to stop at the deadline")


@pytest.mark.parametrize(
    "failures, code, hard, outcome, reason",
    [
        (0, 143, False, "running", f"{WHY}; started again"),
        (0, 0, False, "running", f"{WHY}; started again"),
        (0, -9, True, "running", f"{WHY}, killed; started again"),
        (1, -9, True, "failed", f"{WHY}, killed"),
        (1, 2, False, "failed", WHY),
    ],
)
def test_an_end_as_frozen_is_a_failure_whatever_the_exit_status(
    failures: int, code: int, hard: bool, outcome: str, reason: str
) -> None:
    _, job = box(program="grpo")
    job.failures = failures
    job.stops(WHY, 0, frozen=True, hard=hard)
    assert verdict(job, code) == (outcome, reason)


def test_a_new_process_is_judged_afresh() -> None:
    state, job = box()
    job.stops(WHY, 130, frozen=True, hard=True)
    job.begins(140)
    assert verdict(job, 0) == ("done", "")
    assert at(state, 140 + STALL - 1) == []


@pytest.mark.parametrize(
    "lines, moves",
    [
        (['{"step": 1}', '{"step": 2}'], 2),
        (['{"step": 1}', '{"step": 1, "kind": "eval"}', '{"step": 1}'], 1),
        (['{"loss": 1}', '{"loss": 2}'], 0),
        (['{"step": 9}', '{"step": 3}'], 2),
    ],
)
def test_only_another_step_is_a_move(tmp_path: Path, lines: list[str], moves: int) -> None:
    progress = Progress(tmp_path / "metrics.jsonl")
    progress.path.write_text("".join(line + "\n" for line in lines))
    progress.read()
    assert progress.moves == moves


HANGS = """
import faulthandler, signal, sys, threading
faulthandler.register(signal.SIGUSR1, all_threads=True)
def waits_for_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
threading.Thread(target=waits_for_a_lock, daemon=True).start()
def spins():
    print("here", flush=True)
    while True:
        pass
spins()
"""


def test_the_stacks_name_the_line_that_spins_and_the_lock_that_is_waited_for(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path, "grpo")
    process = Process(place, [sys.executable, "-c", HANGS], os.environ)
    until(lambda: b"here" in place.log.read_bytes())
    keep_stacks(place, process.pid, 0.0)
    process.stop(hard=True)
    until(process.exit_code)
    text = place.stacks.read_text()
    assert text.startswith("=== 1970-01-01 00:00:00 UTC: 1 processes")
    assert "in spins" in text
    assert "in waits_for_a_lock" in text
    assert f"--- process {process.pid}" in text
    assert "VmRSS" in text
    assert text.count("\nthread ") == 2


def test_a_process_that_doesnt_catch_the_signal_isnt_ended_by_being_looked_at(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path, "grpo")
    env = {**os.environ, "GPURUN_OUT": str(place.work / "out")}
    process = Process(place, ["bash", "-c", "setsid sleep 60 & sleep 60"], env)
    until(lambda: _seen(place, process) == 3)
    assert not catches(process.pid, signal.SIGUSR1)
    assert process.exit_code() is None
    process.stop(hard=True)
    until(process.exit_code)


def _seen(place: Place, process: Process) -> int:
    keep_stacks(place, process.pid, 0.0)
    return place.stacks.read_text().rpartition("===")[2].count("--- process")


SPINS = """
import faulthandler, json, os, signal, sys
faulthandler.register(signal.SIGUSR1)
before = os.path.exists("out/before")
open("out/before", "w").close()
with open(os.environ["GPURUN_METRICS"], "a") as file:
    for step in (1, 2, 3):
        file.write(json.dumps({"step": step, "max_steps": 3}) + chr(10))
        file.flush()
if before and sys.argv[1] == "once":
    sys.exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[1] == "deaf" else signal.SIG_DFL)
def all_reduce_that_never_ends():
    while True:
        pass
all_reduce_that_never_ends()
"""


def test_a_command_that_never_told_a_step_learns_where_to_tell_them() -> None:
    state, job = box(command="python3 train.py", program=None)
    job.frozen_at, job.stacks_kept = STALL, True
    (stop,) = at(state, STALL + 1)
    assert isinstance(stop, Stop)
    assert "has reported no step at all in $GPURUN_METRICS for 100 s" in stop.why
    job.step = 1
    assert at(state, STALL + 1) == [Stop("a", hard=False, why=WHY, frozen=True)]


def spinning(rig: Rig, how: str, **changes: Any) -> None:
    (rig.root / "spins.py").write_text(SPINS)
    rig.job("spin", f"exec {sys.executable} {rig.root}/spins.py {how}", stall_s=2, **changes)


@pytest.mark.slow
def test_a_trainer_that_spins_without_a_step_is_ended_and_goes_on_in_its_second_try(
    rig: Rig,
) -> None:
    spinning(rig, "once")
    rig.run()
    status = rig.status("spin")
    assert (status["state"], status["attempt"], status["reason"]) == ("done", 2, "")
    assert b"in all_reduce_that_never_ends" in rig.file("spin", "stacks.txt")


@pytest.mark.slow
def test_a_trainer_that_goes_on_spinning_fails_with_a_reason_that_says_so(rig: Rig) -> None:
    spinning(rig, "always")
    rig.job("after", "echo on >out/x")
    rig.run()
    status = rig.status("spin")
    assert (status["state"], status["attempt"]) == ("failed", 2)
    assert status["reason"].startswith("frozen: no new step for 2 s, its stacks are in stacks.txt")
    assert "; last line of its log: " in status["reason"]
    assert rig.file("spin", "stacks.txt").count(b"=== ") == 2
    assert rig.status("after")["state"] == "done"


@pytest.mark.slow
def test_a_busy_process_that_takes_no_signal_is_killed_after_its_grace(rig: Rig) -> None:
    spinning(rig, "deaf", retries=0)
    rig.run()
    status = rig.status("spin")
    assert (status["state"], status["exit_code"]) == ("failed", -signal.SIGKILL)
    assert ", killed" in status["reason"]


@pytest.mark.slow
def test_a_trainer_whose_steps_are_slower_than_its_lines_is_left_alone(rig: Rig) -> None:
    script = (
        'for step in 1 2 3; do for line in 1 2 3; do echo "{\\"step\\": $step}" '
        '>>"$GPURUN_METRICS"; sleep 0.4; done; done'
    )
    rig.job("slow", script, stall_s=3, retries=0)
    rig.run()
    assert rig.status("slow")["state"] == "done"
    assert "stacks.txt" not in rig.manifests("slow")[-1]["files"]


def test_our_programs_answer_the_signal_before_anything_slow(tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    os.mkfifo(job)  # reading the job waits for as long as nobody writes it
    argv = [sys.executable, "-m", "agent_env.training.evaluate", str(job)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE) as program:
        until(lambda: catches(program.pid, signal.SIGUSR1))
        program.send_signal(signal.SIGUSR1)
        job.write_text(json.dumps({}))
        said = program.communicate(timeout=20)[1].decode()
    assert "Current thread" in said
    assert "run_program" in said
