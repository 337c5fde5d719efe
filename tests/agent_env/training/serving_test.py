"""Bundles side by side on one server: which split is whose, and what a trainer gets for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_env import AgentEnv
from agent_env.training.config import ConfigError, EvaluateConfig, GrpoConfig, parse_config
from agent_env.training.serving import environments, open_env, served_splits

BOTH = {
    "bundle": ["gridsim", "inbox"],
    "split": ["coarse-train", "train"],
    "eval_split": ["coarse-eval", "eval"],
}


@pytest.fixture(scope="module")
def env() -> Iterator[AgentEnv]:
    with open_env(parse_config(GrpoConfig, BOTH), sessions=2) as client:
        yield client


def test_each_bundle_has_the_split_at_its_place(env: AgentEnv) -> None:
    config = parse_config(GrpoConfig, BOTH)
    assert served_splits(env, config, config.split) == ["gridsim/coarse-train", "inbox/train"]


def test_several_bundles_have_a_factory_each_for_training_and_evals(env: AgentEnv) -> None:
    config = parse_config(GrpoConfig, BOTH)
    made = environments(env, config, config.split, config.eval_split)
    assert {name: factory.splits for name, factory in made.items()} == {
        "gridsim": ("gridsim/coarse-train", "gridsim/coarse-eval"),
        "inbox": ("inbox/train", "inbox/eval"),
    }


def test_each_bundle_has_room_for_the_whole_batch(env: AgentEnv) -> None:
    env.check(sessions=4)


def test_one_bundle_is_found_on_a_server_of_several(env: AgentEnv) -> None:
    config = EvaluateConfig(bundle="inbox", split="eval", env_url=env.url)
    assert served_splits(env, config, config.split) == ["inbox/eval"]


def test_a_split_that_is_not_there_is_told_with_those_that_are(env: AgentEnv) -> None:
    config = parse_config(GrpoConfig, BOTH | {"split": ["coarse-train", "coarse-train"]})
    with pytest.raises(
        ConfigError, match=r"inbox has no split 'coarse-train' there; .*inbox/train"
    ):
        served_splits(env, config, config.split)


def test_a_missing_split_is_told_at_its_own_setting(env: AgentEnv) -> None:
    alone = {"bundle": "inbox", "split": "train", "eval_split": "evals", "env_url": env.url}
    config = parse_config(GrpoConfig, alone)
    with pytest.raises(ConfigError, match=r"^config\.eval_split: inbox has no split 'evals'"):
        served_splits(env, config, config.eval_split)


def test_splits_with_other_tools_do_not_share_a_factory(env: AgentEnv) -> None:
    config = parse_config(GrpoConfig, BOTH)
    with pytest.raises(ConfigError, match="differ in their tools"):
        environments(env, config, config.split, ("train", "eval"))


def test_a_server_that_is_already_there_makes_its_own_rewards(env: AgentEnv) -> None:
    with pytest.raises(ConfigError, match=r"'mean' is asked for.*start it with --reward mean"):
        open_env(EvaluateConfig(env_url=env.url, reward="mean"), sessions=1)


def test_a_server_of_ones_own_makes_the_rewards_that_were_asked_for() -> None:
    with open_env(EvaluateConfig(bundle="inbox", split="eval", reward="mean"), sessions=1) as env:
        assert env.reward == "mean"


def test_a_bundle_that_isnt_there_is_a_wrong_config_and_starts_no_server() -> None:
    config = EvaluateConfig(bundle="gridsin", split="eval")
    with pytest.raises(ConfigError, match=r"config\.bundle: no bundle 'gridsin'; did you mean"):
        open_env(config, sessions=1)
