"""An episode goes on through whatever breaks, each step carried out once; or its loss is named."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent_env import AgentEnv
from agent_env.client import AsyncSession, Session, _http, _preflight
from agent_env.client.local import LocalServer
from agent_env.errors import (
    AtCapacity,
    EnvError,
    InvalidAction,
    JournalFull,
    NotReset,
    ProtocolError,
    ServerDown,
    SessionDiverged,
    SessionLost,
    StepTimeout,
)

from .conftest import COUNTER, eventually
from .relay import (
    Fault,
    Relay,
    changed,
    closed_with,
    lose_the_frame,
    lose_the_reply,
    refused_with,
)

TASK: dict[str, Any] = {"split": "train", "index": 0}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    journal = tmp_path_factory.mktemp("journal")
    with LocalServer(COUNTER, max_sessions=32, journal=journal) as running:
        yield running


@pytest.fixture
def relay(server: LocalServer) -> Iterator[Relay]:
    with Relay(server.url) as between:
        yield between


def begun(env: AgentEnv) -> Session:
    """A session in mid-episode, its total at 5."""
    session = env.session()
    session.reset(**TASK)
    assert added(session, 5) == "5"
    return session


def added(session: Session, n: int) -> str:
    told: str = (session.call_tool("add", {"n": n}).model_extra or {})["result"]["data"]
    return told


@pytest.mark.parametrize(
    "fault", [lose_the_frame, lose_the_reply, closed_with(1012)], ids=["frame", "reply", "1012"]
)
def test_a_step_on_a_breaking_connection_is_carried_out_once(relay: Relay, fault: Fault) -> None:
    with AgentEnv(relay.url) as env:
        session = begun(env)
        relay.next("step", fault)
        assert added(session, 1) == "6"
        assert added(session, 1) == "7"
        assert (session.continued, session.reopened) == (1, 0)
        assert session.state().step_count == 3


def test_a_step_may_break_again_and_again(relay: Relay) -> None:
    with AgentEnv(relay.url) as env:
        session = begun(env)
        relay.next("step", lose_the_reply, lose_the_frame, lose_the_reply)
        assert added(session, 1) == "6"
        assert session.waited_s > 0
        steps = [frame["data"] for frame in relay.seen if frame["type"] == "step"]
        assert steps[1] == steps[2] == steps[3] == steps[4]


@pytest.mark.parametrize("fault", [lose_the_frame, lose_the_reply])
def test_a_reset_on_a_breaking_connection_begins_one_episode(relay: Relay, fault: Fault) -> None:
    with AgentEnv(relay.url) as env:
        relay.next("reset", lambda passage: passage.answer(passage.carry_out()), fault)
        session = begun(env)
        session.reset(**TASK)
        assert added(session, 3) == "3"
        assert session.reopened == 1
        sent = [frame["data"]["episode_id"] for frame in relay.seen if frame["type"] == "reset"]
        assert (sent[1], len(set(sent))) == (sent[2], 2)


def test_a_killed_and_restarted_server_goes_on_with_the_episode(tmp_path: Path) -> None:
    with LocalServer(COUNTER, journal=tmp_path) as server, AgentEnv(server.url) as env:
        session = begun(env)
        for epoch in (1, 2):
            server.restart()
            assert added(session, 1) == str(5 + epoch)
            assert session.epoch == epoch
        assert session.call_tool("commit", {}).reward == 0.7


def test_a_server_killed_in_the_middle_of_a_step_carries_it_out_after_all(tmp_path: Path) -> None:
    with (
        LocalServer(COUNTER, journal=tmp_path) as server,
        AgentEnv(server.url) as env,
        ThreadPoolExecutor(1) as pool,
    ):
        session = begun(env)
        running = pool.submit(session.call_tool, "wait", {"seconds": 1.0})
        eventually(lambda: bool(_told(env, "/capacity")["busy_sessions"]))
        server.restart()
        assert running.result(30).model_extra["result"]["data"] == "waited"  # type: ignore[index]
        assert added(session, 1) == "6"


def test_a_rollout_whose_server_was_restarted_is_scored(tmp_path: Path) -> None:
    with LocalServer(COUNTER, journal=tmp_path) as server, AgentEnv(server.url) as env:
        batch = [env.factory_for("train")() for _ in range(8)]
        for one in batch:
            one.reset(**TASK)
            one.add(n=3)
        server.restart()
        for one in batch:
            assert one.add(n=2) == "5"
        server.restart()
        assert [one.get_reward() for one in batch] == [0.5] * 8
        assert {one._rollout.continued for one in batch} == {2}


def test_a_session_that_another_client_took_is_lost(relay: Relay) -> None:
    with AgentEnv(relay.url) as env:
        session = begun(env)
        relay.next("step", closed_with(4409))
        with pytest.raises(SessionLost, match="another client"):
            added(session, 1)
        with pytest.raises(NotReset):
            added(session, 1)
        session.reset(**TASK)
        assert added(session, 1) == "1"


def test_an_idle_session_is_taken_up_again(relay: Relay) -> None:
    with AgentEnv(relay.url) as env:
        session = begun(env)
        relay.next("step", closed_with(4408))
        assert added(session, 1) == "6"


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["metadata"]["session"].update(seq=1),
        lambda data: data["metadata"]["session"].update(seq=True),
        lambda data: data["metadata"]["session"].update(id="somebody-else"),
        lambda data: (data["metadata"].clear(), data["observation"]["metadata"].clear()),
        lambda data: data["metadata"].update(episode_id="another-episode"),
    ],
    ids=["older", "no number", "other session", "no session", "other episode"],
)
def test_a_reply_to_another_frame_is_never_taken_for_the_answer(
    relay: Relay, change: Callable[[dict[str, Any]], object]
) -> None:
    with AgentEnv(relay.url) as env:
        session = begun(env)
        relay.next("step", changed(change))
        with pytest.raises(ProtocolError, match="a reply"):
            added(session, 1)
        with pytest.raises(NotReset):
            added(session, 1)


@pytest.mark.parametrize(
    "said, error",
    [
        ({"code": "SESSION_ERROR", "reason": "SESSION_LOST"}, SessionLost),
        ({"code": "SESSION_ERROR", "reason": "SESSION_DIVERGED", "seq": 1}, SessionDiverged),
        ({"code": "SESSION_ERROR", "reason": "BUNDLE_CHANGED"}, SessionLost),
        ({"code": "EXECUTION_ERROR", "reason": "STEP_TIMEOUT"}, StepTimeout),
        ({"code": "EXECUTION_ERROR", "reason": "ENV_ERROR"}, EnvError),
        ({"code": "EXECUTION_ERROR", "reason": "SEQ_GAP", "expected": 2}, ProtocolError),
        ({"code": "EXECUTION_ERROR"}, EnvError),
        ({"code": "UNKNOWN_TYPE"}, ProtocolError),
    ],
)
def test_what_the_server_refuses_has_a_class_of_its_own(
    relay: Relay, said: dict[str, Any], error: type[Exception]
) -> None:
    with AgentEnv(relay.url) as env:
        session = begun(env)
        relay.next("step", refused_with(**said))
        with pytest.raises(error) as raised:
            added(session, 1)
        assert type(raised.value) is error
        with pytest.raises(NotReset):
            added(session, 1)
        session.reset(**TASK)
        assert added(session, 1) == "1"


def test_a_refused_action_changes_nothing(relay: Relay) -> None:
    with AgentEnv(relay.url) as env:
        session = begun(env)
        relay.next("step", refused_with(code="VALIDATION_ERROR", errors=[]))
        with pytest.raises(InvalidAction):
            added(session, 1)
        assert added(session, 1) == "6"


def test_a_step_that_can_not_be_written_down_is_sent_again(relay: Relay) -> None:
    full = refused_with(code="EXECUTION_ERROR", reason="JOURNAL_FULL", retry_after_s=0.05)
    with AgentEnv(relay.url, budget=2.0) as env:
        session = begun(env)
        relay.next("step", full, full)
        assert added(session, 1) == "6"
        relay.next("step", *[full] * 100)
        with pytest.raises(JournalFull):
            added(session, 1)


def test_a_frame_that_is_too_large_is_not_sent_again_and_again(relay: Relay) -> None:
    with AgentEnv(relay.url) as env:
        session = begun(env)
        relay.next("step", closed_with(1009))
        with pytest.raises(ProtocolError, match="too large"):
            added(session, 1)
        assert [f["type"] for f in relay.seen] == ["reset", "step", "step"]
        session.reset(**TASK)
        assert added(session, 1) == "1"


def test_a_forked_process_that_ends_leaves_the_session_alone(server: LocalServer) -> None:
    with AgentEnv(server.url) as env:
        session = begun(env)
        child = os.fork()
        if child == 0:
            del session
            gc.collect()
            os._exit(0)
        os.waitpid(child, 0)
        assert added(session, 1) == "6"
        assert session.continued == 0


def test_a_server_with_other_tasks_loses_the_session_by_name(tmp_path: Path) -> None:
    folder, journal = tmp_path / "counter", tmp_path / "journal"
    shutil.copytree(COUNTER, folder)
    with LocalServer(folder, journal=journal) as server, AgentEnv(server.url) as env:
        session = begun(env)
        code = folder / "__init__.py"
        code.write_text(code.read_text().replace("You count.", "You count well."))
        server.restart()
        with pytest.raises(SessionLost):
            added(session, 1)
        session.reset(**TASK)
        assert added(session, 1) == "1"


def test_a_server_that_comes_back_without_its_journal_loses_the_session(tmp_path: Path) -> None:
    with LocalServer(COUNTER, journal=tmp_path) as server, AgentEnv(server.url) as env:
        session = begun(env)
        server.kill()
        with LocalServer(COUNTER, port=server.port), pytest.raises(SessionLost):
            added(session, 1)


def test_a_frozen_server_costs_a_call_its_budget_and_no_more(tmp_path: Path) -> None:
    with LocalServer(COUNTER, journal=tmp_path) as server:
        env = AgentEnv(server.url, step_timeout=30, reset_timeout=30, budget=1.5)
        with env:
            small, large = begun(env), begun(env)
            late = env.session()
            os.kill(server.pid, signal.SIGSTOP)
            try:
                for call in (
                    lambda: added(small, 1),
                    lambda: large.call_tool("add", {"n": 1, "note": "x" * 16_000_000}),
                    lambda: late.reset(**TASK),
                    lambda: small.reset(**TASK),
                ):
                    began = time.monotonic()
                    with pytest.raises((StepTimeout, ServerDown)):
                        call()
                    assert time.monotonic() - began < 10.0
            finally:
                os.kill(server.pid, signal.SIGCONT)
            small.reset(**TASK)
            assert added(small, 1) == "1"


def test_a_server_that_is_frozen_for_a_moment_costs_that_moment(tmp_path: Path) -> None:
    with LocalServer(COUNTER, journal=tmp_path) as server, AgentEnv(server.url) as env:
        session = begun(env)
        os.kill(server.pid, signal.SIGSTOP)
        thaw = threading.Timer(0.5, os.kill, [server.pid, signal.SIGCONT])
        thaw.start()
        assert added(session, 1) == "6"
        thaw.join()


def test_clients_of_one_dead_server_wait_for_it_once(tmp_path: Path) -> None:
    with LocalServer(COUNTER, journal=tmp_path) as server:
        options: dict[str, Any] = {"patience": 0.1, "reset_timeout": 1.5}
        envs = [AgentEnv(server.url, **options) for _ in range(4)]
        sessions = [begun(env) for env in envs for _ in range(8)]
        server.kill()
        began = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            died = list(pool.map(_outcome, sessions))
        assert died == [ServerDown] * len(sessions)
        assert time.monotonic() - began < 10.0
        for env in envs:
            env.close()


def test_room_is_waited_for_in_the_servers_own_queue() -> None:
    with LocalServer(COUNTER, max_sessions=1) as server, AgentEnv(server.url, patience=20) as env:
        held = begun(env)
        waiting = env.session()
        with ThreadPoolExecutor(1) as pool:
            seen = pool.submit(waiting.reset, **TASK)
            eventually(lambda: _told(env, "/capacity")["waiting"] == 1)
            held.close()
            assert seen.result(10).done is False
        assert added(waiting, 2) == "2"


def test_a_thousand_resets_hold_one_session(server: LocalServer) -> None:
    with AgentEnv(server.url) as env:
        eventually(lambda: _told(env, "/capacity")["active_sessions"] == 0, 20)
        one = env.factory_for("train")()
        for _ in range(1000):
            one.reset(**TASK)
        assert _told(env, "/capacity")["active_sessions"] == 1
    eventually(lambda: _told(env, "/capacity")["active_sessions"] == 0, 2)


def test_a_forgotten_session_gives_its_slot_back(server: LocalServer) -> None:
    with AgentEnv(server.url) as env:
        before = _told(env, "/capacity")["active_sessions"]
        session = begun(env)
        assert _told(env, "/capacity")["active_sessions"] == before + 1
        del session
        eventually(lambda: _told(env, "/capacity")["active_sessions"] == before, 5)


def test_nothing_runs_on_after_a_close(server: LocalServer) -> None:
    before = threading.active_count()
    with AgentEnv(server.url) as env:
        sessions = [begun(env) for _ in range(4)]
        sessions[0].close()
        with pytest.raises(NotReset):
            added(sessions[0], 1)
    eventually(lambda: threading.active_count() == before, 5)
    with pytest.raises(SessionLost):
        added(sessions[1], 1)
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


def test_a_session_is_used_from_a_pool_of_threads(server: LocalServer) -> None:
    with AgentEnv(server.url) as env, ThreadPoolExecutor(8) as pool:
        session = env.session()
        session.reset(**TASK)
        told = list(pool.map(lambda _: int(added(session, 1)), range(40)))
        assert sorted(told) == list(range(1, 41))


def test_an_awaited_session_keeps_the_same_promises(relay: Relay) -> None:
    async def play(session: AsyncSession) -> float | None:
        async with session:
            await session.reset(**TASK)
            relay.next("step", lose_the_reply, lose_the_frame)
            await session.call_tool("add", {"n": 5})
            assert [tool["name"] for tool in await session.list_tools()][-1] == "end_turn"
            assert (await session.state()).step_count == 2
            assert session.continued == 1
            return (await session.end_turn("done")).reward

    with AgentEnv(relay.url) as env:
        before = threading.active_count()
        assert asyncio.run(play(env.async_session())) == 0.5
        eventually(lambda: threading.active_count() <= before, 5)


def test_many_awaited_sessions_share_one_loop(server: LocalServer) -> None:
    async def play(env: AgentEnv) -> float | None:
        async with env.async_session() as session:
            await session.reset(**TASK)
            await session.call_tool("add", {"n": 5})
            return (await session.end_turn("done")).reward

    async def all_of(env: AgentEnv) -> list[float | None]:
        return await asyncio.gather(*[play(env) for _ in range(24)])

    with AgentEnv(server.url) as env:
        before = threading.active_count()
        assert asyncio.run(all_of(env)) == [0.5] * 24
        assert threading.active_count() == before


def test_a_cancelled_call_leaves_no_reply_for_the_next(server: LocalServer) -> None:
    async def play(session: AsyncSession) -> None:
        async with session:
            await session.reset(**TASK)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(session.call_tool("wait", {"seconds": 1.0}), 0.2)
            with pytest.raises(NotReset):
                await session.call_tool("add", {"n": 1})
            await session.reset(**TASK)
            seen = await session.call_tool("add", {"n": 1})
            assert (seen.model_extra or {})["result"]["data"] == "1"

    with AgentEnv(server.url) as env:
        asyncio.run(play(env.async_session()))


def test_a_slow_step_is_named_by_the_server_and_the_session_goes_on(server: LocalServer) -> None:
    with AgentEnv(server.url, step_timeout=0.5) as env:
        session = begun(env)
        began = time.monotonic()
        with pytest.raises(StepTimeout, match=r"(?i)deadline|longer|took"):
            session.call_tool("wait", {"seconds": 4.0})
        assert time.monotonic() - began < 3.5
        session.reset(**TASK)
        assert added(session, 1) == "1"


def test_a_full_server_is_told_before_anything_is_loaded() -> None:
    with LocalServer(COUNTER, max_sessions=3) as server, AgentEnv(server.url) as env:
        env.check(sessions=3)
        with pytest.raises(AtCapacity, match=r"start it with --max-sessions 4"):
            env.check(sessions=4)
        begun(env)
        own = begun(env)
        env.check(sessions=3)
        assert own.id is not None


def test_sessions_that_others_hold_are_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_preflight, "HELD_S", 0.3)
    with (
        LocalServer(COUNTER, max_sessions=4) as server,
        AgentEnv(server.url) as holder,
        AgentEnv(server.url) as env,
    ):
        held = [begun(holder) for _ in range(2)]
        with pytest.raises(AtCapacity, match=r"2 of the server's 4 are taken by others"):
            env.check(sessions=3)
        held.pop().close()
        env.check(sessions=3)


DIES = f"""
import os, signal, sys
from agent_env import AgentEnv

env = AgentEnv(sys.argv[1])
factory = env.factory_for("train")
batch = [factory() for _ in range(2)]
for one in batch:
    one.reset(**{TASK!r})
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_the_sessions_of_a_trainer_that_died_make_room_for_the_next(tmp_path: Path) -> None:
    with (
        LocalServer(COUNTER, max_sessions=2, journal=tmp_path) as server,
        AgentEnv(server.url) as env,
    ):
        died = subprocess.run(
            [sys.executable, "-c", DIES, server.url],
            env={"PYTHONPATH": str(COUNTER.parents[2])},
            check=False,
        )
        assert died.returncode == -signal.SIGKILL
        assert _told(env, "/capacity")["active_sessions"] == 2
        env.check(sessions=2)
        assert [added(begun(env), 1) for _ in range(2)] == ["6", "6"]


def _told(env: AgentEnv, path: str) -> dict[str, Any]:
    told: dict[str, Any] = _http.ask(env._site.address, "GET", path)
    return told


def _outcome(session: Session) -> type[BaseException] | str:
    try:
        return added(session, 1)
    except Exception as error:
        return type(error)


def test_a_forked_process_has_no_part_in_the_session(server: LocalServer) -> None:
    with AgentEnv(server.url) as env:
        session = begun(env)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                added(session, 100)
            except NotReset:
                session.reset(**TASK)
                os.write(write, added(session, 7).encode())
                session.close()
            os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        with os.fdopen(read) as told:
            assert told.read() == "7"
        assert added(session, 1) == "6"
        assert session.continued == 0
