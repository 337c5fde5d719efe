"""The two tasks as an agent meets them."""

import json
import random

import pytest

from agent_env.bundles.gridsim import bundle
from agent_env.errors import InvalidArguments
from agent_env.task import Task

IDLE = {"battery_kw": [0] * 24, "generator_kw": [0] * 24}


def opened(split: str, index: int = 0) -> Task:
    task = bundle.open(bundle.tasks(split)[index])
    task.reset(None)
    return task


def played(split: str, index: int, noise: float, seed: int = 0) -> Task:
    task = opened(split, index)
    calls = bundle.expert(bundle.tasks(split)[index], noise=noise, rng=random.Random(seed))
    for name, args in calls:
        assert not task.done
        task.call_tool(name, args)
    return task


@pytest.mark.parametrize("split", bundle.splits)
def test_the_expert_needs_two_calls_and_gets_the_whole_reward(split: str) -> None:
    rewards = []
    for index in range(0, len(bundle.tasks(split)), 16):
        task = played(split, index, noise=0.0)
        assert task.done
        rewards.append(bundle.reward(task.score()))
    assert all(reward is not None and reward >= 0.99 for reward in rewards)


@pytest.mark.parametrize("split", ["eval", "coarse-eval"])
def test_more_noise_makes_a_worse_expert(split: str) -> None:
    means = []
    for noise in (0.0, 0.3, 1.0):
        scores = [played(split, index, noise, seed=index).score() for index in range(60)]
        means.append(sum(score["value"] for score in scores) / 60)
    assert means[0] > means[1] + 0.1 > means[2] + 0.2


def test_a_coarse_expert_with_full_noise_never_has_the_best_plan() -> None:
    for index in range(len(bundle.tasks("coarse-eval"))):
        assert played("coarse-eval", index, noise=1.0).score()["value"] < 0.5


@pytest.mark.parametrize("split", bundle.splits)
def test_nothing_committed_is_worth_0(split: str) -> None:
    task = opened(split)
    task.call_tool("read_day", {})
    assert not task.done
    assert task.score() == {"value": 0.0, "committed": 0.0, "feasible": 0.0}


def test_doing_nothing_on_purpose_is_worth_0_too() -> None:
    task = opened("eval")
    task.call_tool("commit_schedule", IDLE)
    assert task.score() == {"value": 0.0, "committed": 1.0, "feasible": 1.0}


def test_what_cannot_be_carried_out_shows_in_the_answer_and_in_feasible() -> None:
    task = opened("eval")
    answer = task.call_tool("commit_schedule", {**IDLE, "battery_kw": [900] * 12 + [0] * 12})
    assert "not carried out as asked: 12." in answer
    assert task.score()["feasible"] == 0.5


@pytest.mark.parametrize(
    "split,args,complaint",
    [
        ("eval", {**IDLE, "battery_kw": [0] * 23}, "battery_kw has 23 values"),
        ("eval", {"battery_kw": [0] * 24}, "generator_kw"),
        ("eval", {**IDLE, "generator_kw": ["much"] * 24}, "generator_kw"),
        ("eval", {**IDLE, "battery_kw": [float("nan")] * 24}, "is nan"),
        ("coarse-eval", {"plan": "midnight"}, "plan"),
        ("coarse-eval", {}, "plan"),
    ],
)
def test_a_wrong_commitment_is_explained_and_may_be_tried_again(
    split: str, args: dict[str, object], complaint: str
) -> None:
    task = opened(split)
    with pytest.raises(InvalidArguments, match=complaint):
        task.call_tool("commit_schedule", args)
    assert not task.done
    assert task.score()["committed"] == 0.0


def test_the_fine_day_is_read_as_24_lines_of_the_frozen_numbers() -> None:
    data = bundle.tasks("eval")[7].data
    lines = opened("eval", 7).call_tool("read_day", {}).splitlines()
    assert len(lines) == 25
    hour_5 = [data[name][5] for name in lines[0].split()[1:]]
    assert [int(word) for word in lines[6].split()] == [5, *hour_5]


def test_a_coarse_day_is_read_in_six_words_and_answered_with_its_value() -> None:
    task = opened("coarse-eval")
    read = task.call_tool("read_day", {}).split()
    assert read[::2] == ["morning", "noon", "evening"]
    plan = read[read.index("high") - 1]
    assert task.call_tool("commit_schedule", {"plan": plan}) == "value 1.0"


def test_the_prompt_gives_away_no_answer() -> None:
    for split in bundle.splits:
        assert len({task.prompt for task in bundle.tasks(split)}) == 1


def test_reset_starts_the_same_day_over() -> None:
    task = opened("coarse-eval", 3)
    first = task.call_tool("read_day", {})
    task.call_tool("commit_schedule", {"plan": "noon"})
    task.reset(99)
    assert not task.done
    assert task.score()["committed"] == 0.0
    assert task.call_tool("read_day", {}) == first


def test_tools_have_the_same_names_in_every_split() -> None:
    for split in bundle.splits:
        specs = bundle.tools(split)
        assert [spec.name for spec in specs] == ["read_day", "commit_schedule"]
        assert json.loads(specs[0].model_dump_json())["input_schema"]["properties"] == {}
