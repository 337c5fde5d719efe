"""A server without our extensions: used as it is, and never trusted with what it can't keep."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_env import AgentEnv
from agent_env.client.local import LocalServer
from agent_env.errors import AtCapacity, EpisodeFailed, ProtocolError, SessionLost, TaskNotFound
from agent_env.training._episode import Record
from agent_env.types import Observation

from .asgi import serving
from .conftest import COUNTER
from .stock import TASKS, Stock


@pytest.fixture
def stock() -> Stock:
    return Stock(tasks=TASKS)


@pytest.fixture
def env(stock: Stock) -> Iterator[AgentEnv]:
    with serving(stock.app()) as port, AgentEnv(f"http://127.0.0.1:{port}") as client:
        yield client


def test_its_tools_are_asked_for_in_an_episode_that_is_ended_again(
    stock: Stock, env: AgentEnv
) -> None:
    assert env.splits == ("train",)
    assert [tool.name for tool in env.tools("train")] == ["add"]
    assert env.tools("train") is env.tools("train")
    assert [frame["type"] for frame in stock.frames] == ["reset", "step", "close"]
    env.check(sessions=100)


def test_nothing_of_our_extensions_reaches_it(stock: Stock, env: AgentEnv) -> None:
    one = env.factory()
    one.reset(**env.rows("train")[1])
    one.add(n=1)
    resets = [set(f["data"]) for f in stock.frames if f["type"] == "reset"]
    assert resets[-1] == {"split", "index", "episode_id"}
    assert all("metadata" not in f["data"] for f in stock.frames if f["type"] == "step")


def test_rows_keep_every_column_of_its_tasks(env: AgentEnv) -> None:
    assert env.rows("train") == [
        {
            "prompt": [{"role": "user", "content": "Sum to 3."}],
            "task_id": "a",
            "split": "train",
            "index": 0,
            "goal": 3,
            "level": None,
            "hints": None,
        },
        {
            "prompt": [{"role": "user", "content": "Sum to 4."}],
            "task_id": "b",
            "split": "train",
            "index": 1,
            "goal": None,
            "level": 2,
            "hints": json.dumps(["be", "brave"]),
        },
    ]
    with pytest.raises(TaskNotFound):
        env.rows("trian")
    with pytest.raises(TaskNotFound, match="there are: train"):
        env.rows()


def test_an_episode_that_the_model_leaves_has_the_last_reward_it_was_told(
    stock: Stock, env: AgentEnv
) -> None:
    one = env.factory()
    one.reset(**env.rows("train")[0])
    assert one.add(n=1) == "1"
    assert one.add(n=2) == "3"
    assert one.get_reward() == 0.5
    one.reset(**env.rows("train")[0])
    assert one.get_reward() is None
    stock.rewards = [None]
    one.reset(**env.rows("train")[0])
    one.add(n=1)
    assert one.get_reward() is None
    stock.rewards = [0.25, None]  # as of a call that its environment refuses: it tells no other
    one.reset(**env.rows("train")[0])
    one.add(n=1)
    one.add(n=1)
    assert one.get_reward() == 0.25


@pytest.mark.parametrize(
    ("scores", "kept"),
    [(None, {}), ([1], {}), ({"a": 1, "b": None, "c": "x", "d": math.nan}, {"a": 1.0})],
)
def test_scores_that_cant_be_averaged_are_left_out(scores: Any, kept: dict[str, float]) -> None:
    record = Record(turns=False)
    record.begin()
    record.read(Observation(done=True, reward=0.5, metadata={"scores": scores}))
    assert (record.rollout.scores, record.rollout.reward) == (kept, 0.5)


def test_a_reward_that_is_no_number_is_unscored(stock: Stock, env: AgentEnv) -> None:
    stock.rewards = [float("inf")]
    one = env.factory()
    one.reset(**env.rows("train")[0])
    with pytest.raises(EpisodeFailed, match="reward is inf"):
        one.add(n=1)
    assert one.get_reward() is None


def test_a_broken_connection_is_a_lost_episode_and_never_a_fresh_one(stock: Stock) -> None:
    with serving(stock.app()) as port:
        env = AgentEnv(f"http://127.0.0.1:{port}")
        by_hand, one = env.session(), env.factory()
        by_hand.reset(split="train", index=0)
        one.reset(**env.rows("train")[0])
    with serving(stock.app(), port=port), env:
        began = time.monotonic()
        with pytest.raises(SessionLost, match="the episode with it"):
            by_hand.call_tool("add", {"n": 1})
        with pytest.raises(SessionLost):
            one.add(n=1)
        assert time.monotonic() - began < 10.0
        assert one.get_reward() is None
        one.reset(**env.rows("train")[0])
        assert one.add(n=4) == "4"


def test_one_that_is_full_is_waited_for_with_patience(stock: Stock) -> None:
    stock.sessions = 1
    with (
        serving(stock.app()) as port,
        AgentEnv(f"http://127.0.0.1:{port}", patience=0.5) as env,
    ):
        held = env.session()
        held.reset(split="train", index=0)
        began = time.monotonic()
        with pytest.raises(AtCapacity):
            env.session().reset(split="train", index=0)
        assert 0.5 <= time.monotonic() - began < 10.0


def test_without_the_task_api_the_error_says_what_to_do() -> None:
    with serving(Stock().app()) as port, AgentEnv(f"http://127.0.0.1:{port}") as env:
        with pytest.raises(ProtocolError, match=r"no Task API.*play it by hand with session"):
            env.rows("train")
        assert env.session().reset().done is False


def test_an_environment_without_tools_is_named(stock: Stock, env: AgentEnv) -> None:
    stock.lists_tools = False
    with pytest.raises(ProtocolError, match="'train' lists no tools"):
        env.tools("train")


@pytest.mark.parametrize("task", ["a name", {"id": "a"}, {"id": "a", "prompt": 3}])
def test_a_task_without_a_prompt_is_named(stock: Stock, env: AgentEnv, task: Any) -> None:
    stock.tasks = [*TASKS, task]
    with pytest.raises(ProtocolError, match="task 2 of 'train' has no text in `prompt`"):
        env.rows("train")


def test_a_server_of_ours_that_is_replaced_by_another_loses_its_sessions(
    stock: Stock, tmp_path: Path
) -> None:
    server = LocalServer(COUNTER, journal=tmp_path)
    with AgentEnv(server.url) as env:
        session = env.session()
        session.reset(split="train", index=0)
        server.kill()
        with serving(stock.app(), port=server.port):
            with pytest.raises(SessionLost):
                session.call_tool("add", {"n": 1})
            for _ in range(2):
                session.reset(split="train", index=0)
                seen = session.call_tool("add", {"n": 2})
                assert (seen.reward, seen.done) == (0.25, False)
