"""Run it with pytest. Add a test for each rule and each way to cheat."""

import random
from pathlib import Path

from agent_env.bundle import load_bundle
from agent_env.checking import check

HERE = Path(__file__).parent
BUNDLE = load_bundle(HERE)


def test_the_check_finds_nothing() -> None:
    assert check(HERE).findings == ()


def test_the_expert_gets_the_whole_reward_on_every_task() -> None:
    for split in BUNDLE.splits:
        for data in BUNDLE.tasks(split):
            task = BUNDLE.open(data)
            task.reset(None)
            for name, args in BUNDLE.expert(data, noise=0.0, rng=random.Random(0)):
                task.call_tool(name, args)
            assert task.done
            assert BUNDLE.reward(task.score()) == 1.0


def test_doing_nothing_is_worth_nothing() -> None:
    task = BUNDLE.open(BUNDLE.tasks("eval")[0])
    task.reset(None)
    assert BUNDLE.reward(task.score()) == 0.0


def test_asking_about_every_number_is_worth_little_more_than_half() -> None:
    task = BUNDLE.open(BUNDLE.tasks("eval")[0])
    task.reset(None)
    number = 100
    while not task.done:
        task.call_tool("ask", {"number": number})
        number -= 1
    worth = BUNDLE.reward(task.score())
    assert worth is not None
    assert worth < 1.0
