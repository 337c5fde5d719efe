"""What a training comes to: means over rollouts that were scored, and None for nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_env.training.summary import eval_numbers, flat_warning, training_numbers

REAL = Path(__file__).parents[2] / "orchestrator" / "metrics" / "grpo.jsonl"
"""What `grpo` wrote in four steps of the tiny model, with an eval half way."""
LINES = [json.loads(line) for line in REAL.read_text("utf-8").splitlines()]


def train(step: int, reward: float | None, scored: int, **more: float | None) -> dict[str, object]:
    return {"kind": "train", "step": step, "reward": reward, "scored": scored, **more}


def test_a_real_training_s_numbers_are_those_of_its_lines() -> None:
    numbers = training_numbers(LINES)

    assert numbers["train_reward"] == pytest.approx(
        (0.647226 + 0.544207 + 0.463499 + 0.639256) / 4
    )
    assert numbers["train_reward_first"] == pytest.approx(0.647226)
    assert numbers["train_reward_last"] == pytest.approx(0.639256)
    assert (numbers["tool_calls"], numbers["tool_calls_last"]) == (1.8125, 1.9375)
    assert numbers["step_seconds"] == pytest.approx((1.227528 + 1.232428) / 2)


def test_a_real_eval_s_numbers_are_those_of_its_lines() -> None:
    numbers = eval_numbers(LINES, 4)

    assert numbers["eval_reward_middle"] == pytest.approx(0.531633)
    assert numbers["eval_seconds"] == 1.203494
    assert eval_numbers(LINES, 6)["eval_reward_middle"] is None


def test_a_step_with_lost_rollouts_weighs_less_and_one_that_lost_all_nothing() -> None:
    lines = [train(1, 0.5, 16), train(2, 1.0, 8), train(3, None, 0)]

    numbers = training_numbers(lines)  # type: ignore[arg-type]

    assert numbers["train_reward"] == pytest.approx(2 / 3)
    assert numbers["train_reward_last"] is None


def test_the_memory_is_the_most_of_any_line_and_absent_where_none_tells_it() -> None:
    lines = [train(1, 0.5, 16, gpu_gb=20.5), {"kind": "eval", "gpu_gb": 22.0}, train(2, 1.0, 8)]

    assert training_numbers(lines)["gpu_gb"] == 22.0  # type: ignore[arg-type]
    assert "gpu_gb" not in training_numbers(LINES)


@pytest.mark.parametrize(
    ("flat", "share"),
    [((1.0, 1.0), 1.0), ((1.0, None), 1.0), ((1.0, 0.5), 0.75), ((None, None), None)],
)
def test_only_a_run_without_any_spread_is_warned_of_and_no_unscored_one(
    flat: tuple[float | None, ...], share: float | None
) -> None:
    lines = [train(n, 0.25, 8, flat_groups=one) for n, one in enumerate(flat)]

    numbers = training_numbers(lines)  # type: ignore[arg-type]

    assert numbers["flat_groups"] == share
    assert (flat_warning(numbers) is not None) is (share == 1)


def test_the_warning_says_what_to_change() -> None:
    said = flat_warning({"flat_groups": 1.0, "train_reward": 0.0})

    assert said is not None
    assert "(their mean is 0.000)" in said
    assert "easier tasks" in said
    assert said.endswith("temperature or rollouts_per_task")


def test_nothing_measured_is_none_and_never_zero() -> None:
    assert set(training_numbers([]).values()) == {None}
    assert set(eval_numbers([], 1).values()) == {None}
