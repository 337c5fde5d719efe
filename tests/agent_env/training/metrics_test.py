"""The metrics file is whole lines, and can be cut back to a checkpoint."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent_env.training.metrics import MetricsFile

NOON = datetime(2026, 5, 1, 12, 0, 0, 250_000, tzinfo=UTC)


@pytest.fixture
def metrics(tmp_path: Path) -> MetricsFile:
    return MetricsFile(tmp_path / "job" / "metrics.jsonl", max_steps=8)


def test_a_line_says_when_where_and_what(metrics: MetricsFile) -> None:
    metrics.append("train", 3, {"reward": 0.123456789, "rollouts": 4}, NOON)
    assert json.loads(metrics.path.read_text()) == {
        "t": NOON.timestamp(),
        "step": 3,
        "max_steps": 8,
        "kind": "train",
        "reward": 0.123457,
        "rollouts": 4,
    }


def test_what_is_not_a_number_becomes_null_and_never_0(metrics: MetricsFile) -> None:
    numbers = {"reward": None, "loss": float("nan"), "grad": float("inf")}
    metrics.append("train", 1, numbers, NOON)
    (line,) = metrics.lines()
    assert (line["reward"], line["loss"], line["grad"]) == (None, None, None)


def test_cutting_back_forgets_later_steps_and_any_end(metrics: MetricsFile) -> None:
    metrics.append("eval", 0, {"reward": 0.5}, NOON)
    for step in (1, 2, 3):
        metrics.append("train", step, {"reward": 0.5}, NOON)
    metrics.append("eval", 2, {"reward": 0.6}, NOON)
    metrics.append("final", 2, {"rise": 0.1}, NOON)
    metrics.cut_back(2)
    kept = [(line["kind"], line["step"]) for line in metrics.lines()]
    assert kept == [("eval", 0), ("train", 1), ("train", 2), ("eval", 2)]


def test_cutting_back_to_before_the_start_leaves_an_empty_file(metrics: MetricsFile) -> None:
    metrics.append("eval", 0, {"reward": 0.5}, NOON)
    metrics.cut_back(-1)
    assert metrics.path.read_text() == ""


def test_a_line_takes_the_place_of_those_of_its_kind_and_step_only(metrics: MetricsFile) -> None:
    for kind, step in (("train", 1), ("train", 2), ("train", 2), ("eval", 2)):
        metrics.append(kind, step, {"reward": 0.5}, NOON)  # type: ignore[arg-type]
    metrics.replace("train", 2, {"reward": 0.75}, NOON)
    seen = [(line["kind"], line["step"], line["reward"]) for line in metrics.lines()]
    assert seen == [("train", 1, 0.5), ("eval", 2, 0.5), ("train", 2, 0.75)]


def test_a_line_cut_by_a_crash_is_left_out_and_the_next_one_is_whole(
    metrics: MetricsFile,
) -> None:
    metrics.append("train", 1, {"reward": 0.5}, NOON)
    with metrics.path.open("a") as file:
        file.write('{"t": 1, "step": 2, "ki')
    metrics.cut_back(1)
    metrics.append("train", 2, {"reward": 0.5}, NOON)
    assert [line["step"] for line in metrics.lines()] == [1, 2]


def test_a_file_that_was_never_written_has_no_lines(metrics: MetricsFile) -> None:
    metrics.cut_back(0)
    assert metrics.lines() == []
    assert metrics.find("eval", 0) is None


def test_a_line_is_forgotten_by_its_kind_and_step(metrics: MetricsFile) -> None:
    for kind, step in (("eval", 0), ("train", 1), ("eval", 1)):
        metrics.append(kind, step, {"reward": None}, NOON)  # type: ignore[arg-type]
    metrics.forget("eval", 1)
    assert [(line["kind"], line["step"]) for line in metrics.lines()] == [
        ("eval", 0),
        ("train", 1),
    ]


def test_the_reward_of_an_eval_is_none_when_nothing_was_scored(metrics: MetricsFile) -> None:
    metrics.append("eval", 0, {"reward": None}, NOON)
    metrics.append("eval", 8, {"reward": 1}, NOON)
    assert (metrics.reward_at(0), metrics.reward_at(4), metrics.reward_at(8)) == (None, None, 1.0)
