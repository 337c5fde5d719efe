"""SIGTERM takes effect at once, except where a checkpoint must come first."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from agent_env.training.stopping import Stopped, StopRequest


@pytest.fixture
def stop() -> Iterator[StopRequest]:
    before = signal.getsignal(signal.SIGTERM)
    request = StopRequest()
    request.listen()
    yield request
    signal.signal(signal.SIGTERM, before)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_outside_of_training_a_request_ends_the_program_at_once(stop: StopRequest) -> None:
    with pytest.raises(Stopped):
        terminate()
    assert stop.asked


def test_no_tool_can_swallow_it(stop: StopRequest) -> None:
    with pytest.raises(Stopped), contextlib.suppress(Exception):
        terminate()


def test_in_training_a_request_waits_to_be_seen(stop: StopRequest) -> None:
    with stop.held():
        terminate()
        assert stop.asked


def test_an_eval_inside_a_training_is_cut_short(stop: StopRequest) -> None:
    with stop.held(), pytest.raises(Stopped), stop.held(False):
        terminate()


def test_an_eval_does_not_start_when_a_stop_was_asked_before(stop: StopRequest) -> None:
    with stop.held():
        terminate()
        with pytest.raises(Stopped), stop.held(False):
            pytest.fail("the eval started")


def test_a_second_request_does_not_interrupt_the_answer_to_the_first(stop: StopRequest) -> None:
    with pytest.raises(Stopped):
        terminate()
    terminate()
