"""An unscored rollout is counted and never averaged."""

from __future__ import annotations

from typing import Any

import pytest

from agent_env.client._dial import Address
from agent_env.client._policy import Policy
from agent_env.client._site import Site
from agent_env.training.rollouts import Recorder, Rollout, tally
from agent_env.training.trl import Factory


class Scored:
    def __init__(self, reward: float | None) -> None:
        self._reward = reward

    def get_reward(self) -> float | None:
        return self._reward


def rollouts(*rewards: float | None) -> list[Rollout]:
    return [Rollout(reward=reward, completion=[], row={}) for reward in rewards]


def record(recorder: Recorder, *rewards: float | None, **columns: Any) -> list[None]:
    return recorder(
        completions=[f"c{i}" for i in range(len(rewards))],
        completion_ids=[[0]] * len(rewards),
        environments=[Scored(reward) for reward in rewards],
        prompts=["p"] * len(rewards),
        trainer_state=object(),
        log_metric=lambda _name, _value: None,
        **columns,
    )


def test_the_mean_is_over_the_scored_ones() -> None:
    counted = tally(rollouts(1.0, None, 0.5))
    assert (counted.reward, counted.rollouts, counted.scored, counted.unscored) == (0.75, 3, 2, 1)


def test_without_a_scored_one_there_is_no_mean() -> None:
    assert tally(rollouts(None, None)).reward is None
    assert tally([]).numbers() == {
        "reward": None,
        "stderr": None,
        "rollouts": 0,
        "scored": 0,
        "unscored": 0,
    }


def test_the_standard_error_is_that_of_the_mean() -> None:
    # Sample standard deviation of 0, 1: sqrt(1/2); over two: divided by sqrt(2).
    assert tally(rollouts(0.0, 1.0)).stderr == pytest.approx(0.5)
    assert tally(rollouts(1.0)).stderr is None


def test_the_recorder_scores_nothing_itself_and_remembers_each_rollouts_row() -> None:
    recorder = Recorder()
    assert record(recorder, 1.0, None, float("nan"), index=[4, 5, 6]) == [None, None, None]
    first, second, third = recorder.take()
    assert first == Rollout(reward=1.0, completion="c0", row={"index": 4}, truncated=True)
    assert (second.reward, third.reward) == (None, None)


def test_the_recorder_remembers_why_an_environment_of_ours_lost_its_rollout() -> None:
    site = Site(Address("http://127.0.0.1:9"))
    policy = Policy(patience=0, reset_timeout=1, waits_for_server=False)
    environment = Factory("counter", (), ("train",), site, policy)()
    environment._episode.begin()
    environment._episode.lose("the server went away")
    recorder = Recorder()
    recorder(
        completions=["", ""],
        completion_ids=[[0], [0]],
        environments=[environment, Scored(None)],
        log_metric=lambda _name, _value: None,
    )
    assert [one.lost for one in recorder.take()] == ["the server went away", None]


def test_the_recorder_hands_a_rollout_out_once() -> None:
    recorder = Recorder()
    record(recorder, 1.0)
    assert len(recorder.take()) == 1
    assert recorder.take() == []


def test_rollouts_of_one_task_are_one_voice() -> None:
    def of(task: str, *rewards: float) -> list[Rollout]:
        return [Rollout(reward=r, completion="", row={"task_id": task}) for r in rewards]

    assert tally([*of("a", 0.0, 0.0), *of("b", 1.0, 1.0)]).stderr == pytest.approx(0.5)
    assert tally(of("a", 0.0, 1.0)).stderr is None
