"""Our client against OpenEnv's own server, whose sessions die with their socket."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

from agent_env import AgentEnv
from agent_env.client import Session
from agent_env.errors import AtCapacity, ProtocolError, SessionError, SessionLost

from .conftest import StockServer

pytestmark = pytest.mark.openenv

BATCH = 16
Start = Callable[..., StockServer]


def opened(env: AgentEnv, count: int) -> list[Session]:
    """Sessions in mid-episode."""
    made = [env.session() for _ in range(count)]
    for session in made:
        session.reset(split="train", index=0)
        session.call_tool("add", {"n": 5})
    return made


def outcome(session: Session) -> str:
    """What became of a session's next step: a reward, or an error's class."""
    try:
        return f"reward {session.call_tool('finish', {}).reward}"
    except SessionError as error:
        return type(error).__name__


def test_a_session_plays_one_episode_after_another(stock: StockServer) -> None:
    with AgentEnv(stock.url) as env:
        session = env.session()
        for n in (3, 7):
            session.reset(split="test", index=1)
            assert "add" in [tool["name"] for tool in session.list_tools()]
            added = session.call_tool("add", {"n": n})
            assert added.model_extra is not None
            assert added.model_extra["result"]["data"] == f"{n} of 21"
            assert session.state().step_count == 2
            ended = session.call_tool("finish", {})
            assert (ended.done, ended.reward) == (True, n / 100)


def test_an_env_with_the_task_api_can_be_trained_on(stock: StockServer) -> None:
    with AgentEnv(stock.url) as env:
        assert env.splits == ("train", "test")
        rows = env.rows("train")
        assert [(row["split"], row["index"]) for row in rows] == [("train", n) for n in range(3)]
        assert rows[1]["prompt"] == [{"role": "user", "content": "Count to 20."}]
        one = env.factory()
        one.reset(**rows[1])
        assert one.add(n=20) == "20 of 20"
        assert one.finish() == "finished"
        assert one.get_reward() == 0.2


def test_an_env_without_the_task_api_says_what_is_missing(start_stock: Start) -> None:
    with (
        AgentEnv(start_stock("--no-tasks").url) as env,
        pytest.raises(ProtocolError, match="Task API"),
    ):
        env.rows("train")


def test_a_full_server_is_waited_for_and_then_named(start_stock: Start) -> None:
    server = start_stock("--sessions", "1")
    with AgentEnv(server.url) as holder, AgentEnv(server.url, patience=0.5) as env:
        (held,) = opened(holder, 1)
        with pytest.raises(AtCapacity):
            env.session().reset(split="train", index=0)
        held.close()
        assert outcome(*opened(env, 1)) == "reward 0.05"


def test_a_restart_loses_every_session_by_name_and_invents_no_reward(stock: StockServer) -> None:
    with AgentEnv(stock.url) as env:
        early, *sessions = opened(env, 1 + BATCH)
        stock.kill()
        began = time.monotonic()
        assert outcome(early) == "SessionLost"
        assert time.monotonic() - began < 5.0
        stock.start()
        assert Counter(map(outcome, sessions)) == {"SessionLost": BATCH}
        assert Counter(map(outcome, sessions)) == {"NotReset": BATCH}
        assert Counter(map(outcome, opened(env, BATCH))) == {"reward 0.05": BATCH}


def test_a_restart_between_two_steps_leaves_a_trainers_batch_unscored(stock: StockServer) -> None:
    with AgentEnv(stock.url) as env:
        row = env.rows("train")[0]
        batch = [env.factory() for _ in range(BATCH)]
        for one in batch:
            one.reset(**row)
            one.add(n=5)
        stock.kill()
        stock.start()
        for one in batch:
            with pytest.raises(SessionLost):
                one.finish()
        assert [one.get_reward() for one in batch] == [None] * BATCH
        for one in batch:
            one.reset(**row)
            one.finish()
        assert [one.get_reward() for one in batch] == [0.0] * BATCH
