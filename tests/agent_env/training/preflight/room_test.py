"""A server that is too small: the message names the fields, and what it says helps."""

from __future__ import annotations

import pytest

from agent_env.training.config import (
    AsyncGrpoConfig,
    EvaluateConfig,
    GrpoConfig,
    ProgramConfig,
    SftConfig,
    VerlGrpoConfig,
)
from agent_env.training.preflight.room import room_fault

SMALL = {"rollouts_per_step": 8, "rollouts_per_task": 4}
TWO = {"bundle": ("gridsim", "inbox"), "split": ("coarse-train", "train")}


@pytest.mark.parametrize(
    ("config", "sessions", "said"),
    [
        (
            GrpoConfig(**SMALL),
            64,
            "config.batch: an eval plays 64 rollouts at once (training 8); the server has 4"
            " sessions: start it with --max-sessions 64, or set batch and rollouts_per_step to 4"
            " at most",
        ),
        (
            GrpoConfig(batch=4, rollouts_per_step=64),
            64,
            "config.rollouts_per_step: training plays 64 rollouts at once (an eval 4); the server"
            " has 4 sessions: start it with --max-sessions 64, or set rollouts_per_step to 4 at"
            " most",
        ),
        (
            SftConfig(eval_samples=8, eval_tasks=1),
            9,
            "config.batch: an eval plays 8 rollouts at once, 1 more for the expert; the server has"
            " 4 sessions: start it with --max-sessions 9, or set batch and eval_samples to 3 at"
            " most",
        ),
        (
            EvaluateConfig(**TWO, samples=1, batch=8),
            8,
            "config.batch: an eval plays 8 rollouts at once, each of 2 bundles as many; the server"
            " has 4 sessions: start it with --max-sessions 16, or set batch to 2 at most",
        ),
        (
            AsyncGrpoConfig(**SMALL),
            8,
            "config.max_inflight: training plays 8 rollouts at once; the server has 4 sessions:"
            " start it with --max-sessions 8, or set max_inflight to 4 at most",
        ),
        (
            VerlGrpoConfig(**SMALL, batch=6),
            8,
            "config.rollouts_per_step: training plays 8 rollouts at once (an eval 6); the server"
            " has 4 sessions: start it with --max-sessions 8, or set rollouts_per_step and batch"
            " to 4 at most",
        ),
    ],
)
def test_the_fields_that_ask_for_too_much_are_named(
    config: ProgramConfig, sessions: int, said: str
) -> None:
    assert room_fault(config, sessions, 4) == said


def test_nothing_is_to_be_lowered_where_not_even_one_rollout_has_room() -> None:
    assert room_fault(SftConfig(), 65, 1).endswith("start it with --max-sessions 65")
