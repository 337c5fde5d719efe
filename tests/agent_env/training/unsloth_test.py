"""What a run under Unsloth is told, and what it is warned of; nothing here needs Unsloth."""

from __future__ import annotations

from typing import Any

import pytest

from agent_env.training.config import ConfigError
from agent_env.training.unsloth import (
    batch_faults,
    grpo_config,
    spelled_out,
    traps,
    trl_defaults,
)


def test_every_argument_that_unsloth_would_replace_is_told() -> None:
    told = spelled_out({})
    assert {name: told[name] for name in trl_defaults()} == trl_defaults()
    assert (told["epsilon_high"], told["output_dir"]) == (0.2, "trainer_output")


def test_what_the_run_says_wins_and_none_is_taken_for_left_out() -> None:
    told = spelled_out({"seed": 0, "optim": "sgd", "beta": None, "epsilon": 0.1, "top_p": None})
    assert (told["seed"], told["optim"], told["beta"]) == (0, "sgd", 0.0)
    assert told["epsilon_high"] == 0.1
    assert told["top_p"] is None


def test_naming_dapo_brings_none_of_the_papers_settings() -> None:
    told = spelled_out({"loss_type": "dapo"})
    assert told["mask_truncated_completions"] is False
    assert told["epsilon_high"] == 0.2


@pytest.mark.parametrize(
    ("arguments", "scaling"),
    [
        ({"loss_type": "dr_grpo"}, None),
        ({"loss_type": "Dr_GRPO", "scale_rewards": "group"}, None),
        ({"loss_type": "dr_grpo", "scale_rewards": True}, None),
        ({"loss_type": "dr_grpo", "scale_rewards": False}, False),
        ({"loss_type": "dr_grpo", "scale_rewards": "batch"}, "batch"),
        ({"loss_type": "bnpo", "scale_rewards": "group"}, "group"),
    ],
)
def test_dr_grpo_keeps_the_scaling_it_was_told(arguments: dict[str, Any], scaling: object) -> None:
    assert spelled_out(arguments)["scale_rewards"] == scaling
    warned = [trap for trap in traps({"output_dir": "out", **arguments}) if "dr_grpo" in trap]
    assert len(warned) == (scaling is None)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"per_device_train_batch_size": 4}, "per_device_train_batch_size: 4 × 1 accumulated"),
        ({"num_generations": 16}, "num_generations, 16"),
        (
            {"eval_strategy": "steps", "per_device_eval_batch_size": 4},
            "per_device_eval_batch_size: 4",
        ),
        (
            {"eval_strategy": "steps", "num_generations_eval": 3},
            "the 3 rollouts of an eval's task",
        ),
        ({"generation_batch_size": 12}, "generation_batch_size: 12 is no multiple of a backward"),
        (
            {"per_device_train_batch_size": 4, "generation_batch_size": 12},
            "generation_batch_size: 12 makes 12 rollouts at once",
        ),
        (
            {"per_device_train_batch_size": 4, "steps_per_generation": 3},
            "steps_per_generation: 3 makes 12 rollouts at once",
        ),
        ({"generation_batch_size": 8, "steps_per_generation": 1}, "generation_batch_size: steps"),
        ({"steps_per_generation": 4, "save_steps": 6}, "save_steps: 6 falls between two generat"),
        ({"num_iterations": 2, "save_steps": 5}, "save_steps: 5 falls between"),
    ],
)
def test_a_batch_without_whole_groups_is_refused_by_the_field_that_is_wrong(
    arguments: dict[str, Any], named: str
) -> None:
    (fault,) = batch_faults(arguments, 1)
    assert named in fault
    with pytest.raises(ConfigError, match=named.split(":")[0]):
        grpo_config(**arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
        {"per_device_train_batch_size": 3, "generation_batch_size": 24},
        {"per_device_eval_batch_size": 3},
        {"steps_per_generation": 4, "save_steps": 8},
        {"steps_per_generation": 4, "save_steps": 6, "save_strategy": "no"},
        {"steps_per_generation": 4, "gradient_accumulation_steps": 4, "save_steps": 3},
        {"eval_strategy": "steps", "per_device_eval_batch_size": 4, "num_generations_eval": 2},
    ],
)
def test_a_batch_of_whole_groups_is_let_pass(arguments: dict[str, Any]) -> None:
    assert list(batch_faults(arguments, 1)) == []


def test_several_processes_fill_a_batch_together() -> None:
    assert list(batch_faults({"per_device_train_batch_size": 4}, 2)) == []


def test_an_eval_batch_of_8_is_said_to_shrink_with_a_smaller_training_batch() -> None:
    small = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "output_dir": "o"}
    (trap,) = traps({**small, "eval_strategy": "steps"})
    assert "4 rollouts at once" in trap
    assert list(traps(small)) == []
    assert list(traps({**small, "eval_strategy": "steps", "per_device_eval_batch_size": 16})) == []


def test_saving_without_a_place_is_told_where_it_goes() -> None:
    (trap,) = traps({})
    assert "trainer_output" in trap
    assert list(traps({"save_strategy": "no"})) == list(traps({"output_dir": "out"})) == []
