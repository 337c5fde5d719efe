"""The gate in little: the same numbers, whatever happens to the server and its sockets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent_env.chaos.__main__ import HURRIED, short
from tests.agent_env.chaos.harness import Outcome, run
from tests.agent_env.chaos.monkey import KINDS
from tests.agent_env.chaos.rollout import Line
from tests.agent_env.chaos.verdict import judge


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_struck_server_changes_no_number(tmp_path: Path) -> None:
    plan = short(seed=0)
    peace = run(plan, tmp_path / "peace", None)
    chaos = run(plan, tmp_path / "chaos", HURRIED)
    assert chaos.lost == []
    assert judge(peace, chaos).kept
    assert set(chaos.strikes) == set(KINDS)
    assert chaos.cuts >= 10


def outcome(*lines: Line) -> Outcome:
    return Outcome(lines=list(lines), wall_s=10.0, down_s=2.0)


RIGHT = Line("a", 0, "c0ffee", 0.5, {"near": 0.5}, calls=3, steps=3)
OTHER = replace(RIGHT, attempt=1)


def test_the_same_numbers_in_another_order_are_the_same() -> None:
    verdict = judge(outcome(RIGHT, OTHER), outcome(OTHER, RIGHT))
    assert verdict.kept
    assert verdict.allowed_s == 17.0


def test_a_rollout_without_a_reward_is_lost() -> None:
    unscored = replace(OTHER, reward=None, steps=None)
    verdict = judge(outcome(RIGHT, OTHER), outcome(RIGHT, unscored))
    assert (verdict.lost, verdict.fabricated, verdict.kept) == (1, 0, False)


def test_a_missing_rollout_is_lost() -> None:
    assert judge(outcome(RIGHT, OTHER), outcome(RIGHT)).lost == 1


def test_a_step_that_was_carried_out_twice_is_found() -> None:
    verdict = judge(outcome(RIGHT), outcome(replace(RIGHT, steps=4)))
    assert (verdict.duplicated, verdict.kept) == (1, False)


def test_another_reward_is_made_up() -> None:
    verdict = judge(outcome(RIGHT), outcome(replace(RIGHT, reward=0.6)))
    assert (verdict.fabricated, verdict.kept) == (1, False)


def test_another_observation_with_the_same_reward_is_seen() -> None:
    verdict = judge(outcome(RIGHT), outcome(replace(RIGHT, chain="decaf")))
    assert (verdict.lost, verdict.fabricated, verdict.kept) == (0, 0, False)
