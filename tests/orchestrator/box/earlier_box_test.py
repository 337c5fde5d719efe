"""A box that takes another's place: what failed there isn't tried again, what was cut goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.box.actions import Install, LookBack, Mark, PowerOff, Report
from orchestrator.box.agent import Agent
from orchestrator.box.connection import StoreDown
from orchestrator.box.deadline import Clock
from orchestrator.box.errands import Host
from orchestrator.box.fold import fold
from orchestrator.box.lanes import Outcome
from orchestrator.box.memory import recall
from orchestrator.box.state import ABSENT, READY, Job, State

from .decide_test import DRAIN, T0, actions, box, running
from .errands_desk import errands_of
from .memory_store import Held
from .rig import PREFIX


@pytest.fixture
def state() -> State:
    state = box({"name": "a", "pins": "cpu"}, {"name": "b", "needs": ["a"]}, {"name": "c"})
    state.earlier.state = ABSENT
    return state


def said(state: str, **more: Any) -> dict[str, Any]:
    told = {"reason": "exit status 1", "attempt": 2, "step": 7, "exit_code": 1, "metrics": {}}
    return {"state": state} | told | more


def looked_back(state: State, statuses: dict[str, Any]) -> None:
    fold(state, Outcome(LookBack(), statuses, None), T0)


def test_a_box_does_nothing_with_its_jobs_before_it_knows_what_became_of_them(
    state: State,
) -> None:
    assert actions(state) == [LookBack()]
    state.busy = frozenset({"earlier"})
    assert actions(state) == []
    looked_back(state, {})
    assert actions(state) == [Install("cpu"), Mark("a", "installing")]


def test_what_failed_or_was_blocked_is_taken_as_it_is_and_what_was_cut_goes_on(
    state: State,
) -> None:
    blocked = said("blocked", reason="a is failed", attempt=0)
    looked_back(state, {"a": said("failed"), "b": blocked, "c": said("cut")})
    a, b, c = state.jobs.values()
    assert (a.state, a.outcome, a.reason, a.attempt, a.step) == (
        *("failed", "failed", "exit status 1", 2, 7),
    )
    assert (b.state, b.outcome, c.state, c.outcome) == ("blocked", "blocked", "waiting", "")
    assert actions(state) == [Mark("c", "installing")]


def test_a_box_whose_jobs_had_all_failed_says_goodbye_at_once(state: State) -> None:
    looked_back(state, {name: said("failed") for name in state.jobs})
    assert actions(state, T0 + 10) == [Report("off", log=True)]
    state.off_reported = True
    assert actions(state, T0 + 10) == [PowerOff()]


def test_what_waits_for_a_job_that_had_failed_is_blocked_here(state: State) -> None:
    looked_back(state, {"a": said("failed")})
    assert Mark("b", "blocked", "a is failed") in actions(state)


def test_an_s3_that_is_away_is_asked_again_and_keeps_no_box_from_its_drain(state: State) -> None:
    fold(state, Outcome(LookBack(), None, StoreDown("away")), T0)
    assert actions(state) == []
    assert actions(state, T0 + 1) == [LookBack()]
    assert Mark("c", "cut", "the deadline came before it started") in actions(state, DRAIN)
    state.jobs["c"].state = "cut"
    looked_back(state, {"c": said("failed")})
    assert state.jobs["c"].state == "failed"


def test_a_job_that_this_boxs_own_agent_wrote_down_waits_for_nobody(state: State) -> None:
    job = running(state)
    job.alive, job.recalled = False, True
    state.pins["cpu"].state = READY
    found = actions(state)
    assert LookBack() in found
    assert len(found) == 2, "it's started again, and the others wait"
    looked_back(state, {"a": said("failed")})
    assert job.state == "running"


def test_nothing_is_told_of_a_job_before_its_last_word_was_read_and_that_stays(
    state: State, tmp_path: Path
) -> None:
    held, key = Held(), f"{PREFIX}jobs/a/status.json"
    last_word = json.dumps({"job": "a", "box": "x", "at": 1.0} | said("failed")).encode()
    held.objects[key] = last_word
    errands = errands_of(state, held, tmp_path)
    errands.of(Report("bootstrap", log=False), T0)[1]()
    assert [name for name in held.objects if "/status.json" in name] == [key]
    assert json.loads(held.objects[f"{PREFIX}boxes/x/heartbeat.json"])["jobs"] == {}
    lane, look = errands.of(LookBack(), T0)
    statuses = look()
    assert (lane, statuses) == ("earlier", {"a": json.loads(last_word)})
    looked_back(state, {"a": json.loads(last_word)})
    errands.heard({"a": json.loads(last_word)})
    errands.of(Report("bootstrap", log=False), T0)[1]()
    told = {name: json.loads(data) for name, data in held.objects.items() if "/jobs/" in name}
    assert told[key]["state"] == "failed"
    assert told[f"{PREFIX}jobs/b/status.json"]["state"] == "waiting"


@pytest.mark.parametrize("attempt", [0, 1, 2])
def test_only_the_first_box_in_a_place_needs_not_look_back(attempt: int, tmp_path: Path) -> None:
    spec = box({"name": "a"}).spec
    host = Host(tmp_path, ("true",), None, "i-0", T0, attempt)
    state = Agent(spec, host, Clock(not_before=T0))._state
    assert state.knows(state.jobs["a"]) == (attempt == 1)


def test_what_was_taken_over_is_written_down_for_the_next_agent(tmp_path: Path) -> None:
    spec = box({"name": "a"}, {"name": "b"}).spec
    agent = Agent(spec, Host(tmp_path, ("true",), None, "i-0", T0, 2), Clock(not_before=T0))
    agent._take(Outcome(LookBack(), {"a": said("failed")}, None), T0)
    kept = Job(spec.jobs[0])
    assert recall(kept, tmp_path / "jobs" / "a")
    assert (kept.state, kept.outcome, kept.reason) == ("failed", "failed", "exit status 1")
    assert not recall(Job(spec.jobs[1]), tmp_path / "jobs" / "b")
