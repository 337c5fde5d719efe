"""What the programs on Ray tell at their end is what a runbook may name of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent_env.training.config.numbers import NUMBERS
from agent_env.training.metrics import Kind, MetricsFile
from agent_env.training.ray_job import summary

KINDS: tuple[tuple[Kind, int], ...] = (("eval", 0), ("train", 1), ("eval", 1))
NOW = datetime(2026, 11, 29, tzinfo=UTC)


@pytest.mark.parametrize("program", ["verl_grpo", "skyrl_grpo"])
def test_the_numbers_of_the_end_are_those_that_a_runbook_may_name(
    tmp_path: Path, program: str
) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl", max_steps=1)
    for kind, step in KINDS:
        metrics.append(kind, step, {"reward": 0.5, "rollouts": 2, "scored": 2}, NOW)
    assert sorted(summary(metrics, 1)) == sorted(NUMBERS[program])
