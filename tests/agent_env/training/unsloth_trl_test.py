"""Under a config class that does what Unsloth's does, a run means what TRL alone makes of it."""

from __future__ import annotations

import dataclasses
import json
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import transformers
import trl

from agent_env.training.job import JobFailed
from agent_env.training.unsloth import UnslothTrap, async_config, grpo_config, trl_defaults

pytestmark = pytest.mark.trl

READ = json.loads((Path(__file__).parent / "unsloth_wheels.json").read_text())
CPU = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False}


class UnslothGRPOConfig(trl.GRPOConfig):  # type: ignore[misc]
    """Unsloth's defaults as the wheel's tables have them, and its rules in our own words."""

    def __init__(self, **told: Any) -> None:
        fields = {field.name for field in dataclasses.fields(trl.GRPOConfig)}
        tables = READ["unsloth"]["defaults"]
        own = {**tables["all"], **tables["grpo"], "warmup_steps": 0.1}
        told = {**{name: own[name] for name in own.keys() & fields}, **told}
        is_named = told["loss_type"] is not None
        told["loss_type"] = (told["loss_type"] or "dapo").lower()
        if told["beta"] is None:
            told["beta"] = 0.0 if told["loss_type"] in ("dapo", "dr_grpo") else 0.001
        if told["loss_type"] == "dr_grpo":
            kept = told.get("scale_rewards", "group")
            told["scale_rewards"] = (
                True if kept is None else False if kept in (True, "group") else kept
            )
        if told["loss_type"] == "dapo" and is_named:
            told["epsilon_high"] = (
                0.28 if told.get("epsilon_high") is None else told["epsilon_high"]
            )
            if told["mask_truncated_completions"] is None:
                told["mask_truncated_completions"] = True
        told["mask_truncated_completions"] = bool(told["mask_truncated_completions"])
        if told["output_dir"] is None:
            told |= {"output_dir": "unsloth_training_checkpoints", "save_strategy": "no"}
        super().__init__(**told)


@pytest.fixture
def under_unsloth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trl, "GRPOConfig", UnslothGRPOConfig)


def test_these_tests_run_on_the_transformers_that_unsloth_ends_at() -> None:
    assert trl.__version__.startswith("1.16.")
    assert transformers.__version__.startswith("5.17.")
    assert "<=5.17.0" in READ["unsloth"]["caps"]["transformers"].split(",")


def made(config: Any) -> dict[str, Any]:
    """What a config says, the place of its output aside."""
    fields = {field.name for field in dataclasses.fields(trl.GRPOConfig)} - {"output_dir"}
    return {name: getattr(config, name, None) for name in fields}


def test_every_default_that_unsloth_replaces_is_spelled_out_as_trl_has_it() -> None:
    fields = {field.name: field.default for field in dataclasses.fields(trl.GRPOConfig)}
    assert {name: fields[name] for name in trl_defaults()} == trl_defaults()


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"seed": 7, "learning_rate": 5e-5, "output_dir": "there"},
        {"loss_type": "dapo"},
        {"loss_type": "bnpo"},
        {"loss_type": "dr_grpo"},
        {"loss_type": "dr_grpo", "scale_rewards": False},
        {"beta": 0.04, "epsilon": 0.1},
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
        {"eval_strategy": "steps", "num_generations_eval": 4},
        {"save_strategy": "no"},
    ],
    ids=str,
)
def test_a_run_under_unsloth_means_what_trl_alone_makes_of_it(
    arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = made(grpo_config(**CPU, **arguments))
    monkeypatch.setattr(trl, "GRPOConfig", UnslothGRPOConfig)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnslothTrap)
        config = grpo_config(**CPU, **arguments)
    assert type(config) is UnslothGRPOConfig
    high = {"epsilon_high": arguments.get("epsilon", 0.2)}
    assert made(config) == {**plain, **high}


def test_left_to_itself_the_same_class_means_something_else() -> None:
    alone = UnslothGRPOConfig(**CPU, loss_type="dapo")
    assert alone.optim == "adamw_8bit"
    assert alone.save_strategy == "no"
    assert (alone.epsilon_high, alone.mask_truncated_completions) == (0.28, True)


@pytest.mark.usefixtures("under_unsloth")
def test_traps_are_warned_of_where_the_config_is_made() -> None:
    with pytest.warns(UnslothTrap, match="scale_rewards stays on") as warned:
        grpo_config(**CPU, output_dir="out", loss_type="dr_grpo")
    assert [warning.filename for warning in warned] == [__file__]


def test_an_unsloth_that_changes_what_it_was_told_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class UnslothNewerConfig(UnslothGRPOConfig):
        def __init__(self, **told: Any) -> None:
            super().__init__(**{**told, "temperature": 0.6})

    monkeypatch.setattr(trl, "GRPOConfig", UnslothNewerConfig)
    with pytest.raises(JobFailed, match=r"temperature is 0\.6, not 1\.0"):
        grpo_config(**CPU, output_dir="out")


def test_asynchronous_training_under_unsloth_means_what_trl_alone_makes_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    module = import_module("trl.experimental.async_grpo")
    plain = module.AsyncGRPOConfig
    fields = {field.name for field in dataclasses.fields(plain) if field.init}

    class UnslothAsyncGRPOConfig(plain):  # type: ignore[misc,valid-type]
        def __init__(self, **told: Any) -> None:
            own = READ["unsloth"]["defaults"]["all"] | {"warmup_steps": 0.1}
            super().__init__(**{name: own[name] for name in own.keys() & fields} | told)

    told = {**CPU, "output_dir": "out", "max_steps": 3, "max_inflight_tasks": 4}
    alone, expected = UnslothAsyncGRPOConfig(**told), async_config(**told)
    monkeypatch.setattr(module, "AsyncGRPOConfig", UnslothAsyncGRPOConfig)
    config = async_config(**told)
    assert type(config) is UnslothAsyncGRPOConfig
    differ = {name for name in fields if getattr(config, name) != getattr(expected, name)}
    assert differ == {"epsilon_high"}, "spelled out as TRL reads it: the lower bound"
    assert config.epsilon_high == config.epsilon
    assert alone.optim == "adamw_8bit"
