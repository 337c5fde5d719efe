"""inbox on a real server: what a trainer's environment and a warm start make of two turns."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from agent_env import AgentEnv
from agent_env.bundles.inbox import bundle
from agent_env.training.demonstrations import play_expert


@pytest.fixture(scope="module")
def env() -> Iterator[AgentEnv]:
    with AgentEnv.local("inbox", max_sessions=2) as served:
        yield served


def test_a_warm_start_shows_both_turns(env: AgentEnv) -> None:
    rows = env.rows("train")
    environment = env.factory_for("train")()
    talks = play_expert(
        bundle, rows, environment, split="train", noise=0.0, count=10, rng=random.Random(1)
    )
    assert environment.get_reward() == 1.0
    for talk in talks:
        assert [message["role"] for message in talk[:2]] == ["system", "user"]
        answers = [message["content"] for message in talk if message.get("name") == "end_turn"]
        second, end = answers
        assert second.startswith("Thank you. ")
        assert end == "The episode has ended."


def test_plain_text_is_an_empty_reply_that_ends_both_turns(env: AgentEnv) -> None:
    environment = env.factory_for("eval")()
    environment.reset(**env.rows("eval")[0])
    environment.search(query="invoice")
    assert environment.get_reward() == 0.0


def test_the_mean_of_the_scores_can_be_the_reward_instead() -> None:
    with AgentEnv.local("inbox", max_sessions=1, reward="mean") as env:
        session = env.session()
        session.reset(split="eval", index=0)
        calls = bundle.expert(env.tasks("eval")[0], noise=0.0, rng=random.Random(0))
        for name, arguments in calls:
            silent = {"response": ""} if name == "end_turn" else arguments
            end = session.call_tool(name, silent)
        assert end.metadata["scores"] == {"first": 1, "answer": 0, "second": 1, "careful": 1}
        assert end.reward == 0.75
