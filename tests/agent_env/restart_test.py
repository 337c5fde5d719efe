"""A real server, killed and started again: what it costs a trainer's environments."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from agent_env import AgentEnv
from agent_env.client.local import LocalServer
from agent_env.errors import AtCapacity, ServerDown, SessionLost

from .conftest import COUNTER

TASK: dict[str, Any] = {"split": "train", "index": 0}


def environments(env: AgentEnv, count: int) -> list[Any]:
    """Environments in the middle of a run: each has had a session."""
    factory = env.factory_for("train")
    made = [factory() for _ in range(count)]
    for one in made:
        one.reset(**TASK)
    return made


def play(one: Any) -> float | None:
    """One rollout's end: the tools as a trainer calls them, then the reward."""
    with suppress(Exception):  # TRL hands it to the model as text
        one.add(n=5)
        one.commit()
    reward: float | None = one.get_reward()
    return reward


class Told(logging.Handler):
    """Sets an event when a client says that it begins to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.event = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "trying for" in record.getMessage():
            self.event.set()


@contextmanager
def back_when_waited_for(port: int) -> Iterator[list[LocalServer]]:
    """Starts a server on the port as soon as somebody waits for one."""
    logger, told = logging.getLogger("agent_env.client._openenv"), Told()
    logger.addHandler(told)
    logger.setLevel(logging.INFO)
    started: list[LocalServer] = []

    def start() -> None:
        if told.event.wait(20):
            started.append(LocalServer(COUNTER, port=port))

    thread = threading.Thread(target=start)
    thread.start()
    try:
        yield started
    finally:
        told.event.set()
        thread.join()
        logger.removeHandler(told)
        for server in started:
            server.stop()


def test_a_session_dropped_by_a_restarting_server_opens_again_and_the_rollout_scores() -> None:
    server = LocalServer(COUNTER)
    with AgentEnv(server.url, reset_timeout=30) as env:
        one, two = environments(env, 2)
        one.add(n=5)
        server.kill()
        assert play(one) is None
        assert play(two) is None
        with back_when_waited_for(server.port):
            for environment in (one, two):
                environment.reset(**TASK)
                assert play(environment) == 0.5
        assert [e._unscored for e in (one, two)] == [1, 1]
        assert [e._session.reopened for e in (one, two)] == [1, 1]
        assert one._rollout.waited_s > 0.0
        assert one._rollout.reopened == 1


def test_without_the_wait_every_rollout_that_starts_meanwhile_is_unscored() -> None:
    server = LocalServer(COUNTER)
    with AgentEnv(server.url, reset_timeout=30, waits_for_server=False) as env:
        (one,) = environments(env, 1)
        server.kill()
        assert play(one) is None
        began = time.monotonic()
        one.reset(**TASK)
        assert time.monotonic() - began < 10.0
        assert play(one) is None
        with LocalServer(COUNTER, port=server.port):
            one.reset(**TASK)
            assert play(one) == 0.5
        assert one._unscored == 2


def test_a_whole_batch_gives_up_after_one_wait() -> None:
    server = LocalServer(COUNTER)
    with AgentEnv(server.url, patience=0.1, reset_timeout=1.5) as env:
        batch = environments(env, 16)
        server.kill()
        began = time.monotonic()
        for one in batch:
            assert one.reset(**TASK) is None
        assert time.monotonic() - began < 12.0
        assert [play(one) for one in batch] == [None] * 16


def test_a_hung_server_costs_a_batch_one_timeout_and_short_looks() -> None:
    server = LocalServer(COUNTER)
    with AgentEnv(server.url, patience=0.1, reset_timeout=1.0, step_timeout=1.0) as env:
        batch = environments(env, 4)
        os.kill(server.pid, signal.SIGSTOP)
        began = time.monotonic()
        for one in batch:
            one.reset(**TASK)
        assert [play(one) for one in batch] == [None] * 4
        assert time.monotonic() - began < 6.0
        os.kill(server.pid, signal.SIGCONT)
        for one in batch:
            one.reset(**TASK)
        assert [play(one) for one in batch] == [0.5] * 4
    server.stop()


def test_an_environment_whose_slot_another_took_gives_up_soon() -> None:
    server = LocalServer(COUNTER, max_sessions=1)
    with AgentEnv(server.url, patience=0.5, reset_timeout=30) as env:
        (one,) = environments(env, 1)
        server.kill()
        with LocalServer(COUNTER, max_sessions=1, port=server.port) as again:
            other = AgentEnv(again.url).session()
            other.reset()
            began = time.monotonic()
            one.reset(**TASK)
            assert 0.5 <= time.monotonic() - began < 15.0
            assert play(one) is None
            other.close()
            one.reset(**TASK)
            assert play(one) == 0.5


def test_the_first_session_raises_when_nobody_listens() -> None:
    with LocalServer(COUNTER) as server:
        env = AgentEnv(server.url)
        factory = env.factory_for("train")
    began = time.monotonic()
    with pytest.raises(ServerDown, match="can't be reached"):
        factory().reset(**TASK)
    assert time.monotonic() - began < 10.0


def test_the_first_session_raises_when_the_server_is_full() -> None:
    with (
        LocalServer(COUNTER, max_sessions=1) as server,
        AgentEnv(server.url) as holder,
        AgentEnv(server.url) as env,
    ):
        held = holder.session()
        held.reset()
        with pytest.raises(AtCapacity, match="all 1 sessions are taken"):
            env.session().reset()


def test_a_batch_larger_than_the_server_raises_rather_than_losing_rollouts() -> None:
    with (
        LocalServer(COUNTER, max_sessions=2) as server,
        AgentEnv(server.url, patience=0.2) as env,
    ):
        kept = environments(env, 2)
        with pytest.raises(AtCapacity):
            env.factory_for("train")().reset(**TASK)
        assert [play(one) for one in kept] == [0.5, 0.5]


def test_a_new_environment_waits_for_a_server_that_others_knew() -> None:
    server = LocalServer(COUNTER)
    with AgentEnv(server.url, reset_timeout=30) as env:
        (one,) = environments(env, 1)
        server.kill()
        assert play(one) is None
        late = env.factory_for("train")()
        with back_when_waited_for(server.port):
            late.reset(**TASK)
            assert play(late) == 0.5


def test_a_lost_step_is_never_taken_for_another_episodes() -> None:
    server = LocalServer(COUNTER)
    with AgentEnv(server.url) as env:
        session = env.session()
        session.reset(**TASK)
        server.kill()
        with LocalServer(COUNTER, port=server.port), pytest.raises(SessionLost):
            session.call_tool("add", {"n": 1})
