"""When a box reads its jobs' secrets, how long it tries, and what waits for them."""

from __future__ import annotations

from orchestrator.box.actions import Mark, ReadSecrets, Start, Sync
from orchestrator.box.fold import SECRET_TRIES, fold
from orchestrator.box.lanes import Outcome
from orchestrator.box.secrets import SecretUnread
from orchestrator.box.state import State

from .decide_test import T0, actions, box, running

SOURCES = {"HF_TOKEN": "ssm:/team/hf"}
WHY = "HF_TOKEN can't be read from ssm:/team/hf: AccessDeniedException"


def ready_to_start() -> State:
    state = box({"name": "a"}, secrets=SOURCES)
    state.jobs["a"].state, state.jobs["a"].prepared = "installing", True
    return state


def refused(state: State, now: float) -> None:
    fold(state, Outcome(ReadSecrets(), None, SecretUnread(WHY)), now)


def test_secrets_are_read_right_before_the_first_job_starts() -> None:
    state = box({"name": "a"}, secrets=SOURCES)
    assert ReadSecrets() not in actions(state)
    state = ready_to_start()
    assert actions(state) == [ReadSecrets()]
    state.busy = frozenset({"secrets"})
    assert actions(state) == []
    fold(state, Outcome(ReadSecrets(), {"HF_TOKEN": "x"}, None), T0)
    assert actions(state) == [Start("a")]


def test_what_cant_be_read_is_tried_for_half_a_minute_and_then_fails_the_job_by_name() -> None:
    state, now = ready_to_start(), T0
    for _ in range(SECRET_TRIES - 1):
        refused(state, now)
        assert ReadSecrets() not in actions(state, now)
        now = state.secrets.not_before
        assert ReadSecrets() in actions(state, now)
    refused(state, now)
    assert Mark("a", "failed", WHY) in actions(state, now)
    assert 30 <= now - T0 <= 60


def test_a_box_without_secrets_reads_none() -> None:
    state = box({"name": "a"})
    state.jobs["a"].state, state.jobs["a"].prepared = "installing", True
    assert actions(state) == [Start("a")]


def test_nothing_of_a_job_goes_out_until_a_second_agent_knows_what_mustnt() -> None:
    state = box({"name": "a"}, secrets=SOURCES)
    job = running(state)
    job.alive, job.outcome, job.state, job.recalled = False, "cut", "syncing", True
    assert actions(state) == [ReadSecrets()]
    for _ in range(SECRET_TRIES):
        refused(state, T0)
    assert Sync("a", final=True) not in actions(state, state.secrets.not_before)
    assert ReadSecrets() in actions(state, state.secrets.not_before)
    fold(state, Outcome(ReadSecrets(), {"HF_TOKEN": "x"}, None), T0)
    assert actions(state) == [Sync("a", final=True)]


def test_they_are_read_once_however_many_ask() -> None:
    state = box({"name": "a"}, {"name": "b"}, secrets=SOURCES)
    state.jobs["a"].state, state.jobs["a"].prepared = "installing", True
    state.jobs["b"].state, state.jobs["b"].recalled = "done", True
    assert actions(state) == [ReadSecrets()]
