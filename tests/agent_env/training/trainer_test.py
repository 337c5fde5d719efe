"""What the trainer is told, checked against the trainer's own fields and defaults."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from trl import GRPOConfig

from agent_env.training.config import GrpoConfig, UnslothConfig
from agent_env.training.job import JobFailed
from agent_env.training.learner import step_arguments
from agent_env.training.metrics import MetricsFile
from agent_env.training.progress import Progress
from agent_env.training.rollouts import Recorder
from agent_env.training.trainer import arguments, eval_arguments, training_order
from agent_env.training.unsloth import load_model

pytestmark = pytest.mark.trl


class Lost:
    def get_reward(self) -> float | None:
        return None


class Scored:
    def get_reward(self) -> float | None:
        return 1.0


def log_steps(progress: Progress, *environments: object) -> None:
    """One training step for each environment, as the trainer reports them."""
    for step, environment in enumerate(environments, start=1):
        progress.recorder(completions=[""], environments=[environment])
        progress.on_log(None, SimpleNamespace(global_step=step), None, logs={"reward": None})


def test_a_run_ends_when_no_rollout_of_several_steps_in_a_row_was_scored(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl", max_steps=9)
    progress = Progress(metrics, Recorder(), unscored_steps=2)
    log_steps(progress, Lost(), Scored(), Lost())
    with pytest.raises(JobFailed, match="2 steps in a row"):
        log_steps(progress, Lost())
    assert [line["unscored"] for line in metrics.lines()] == [1, 0, 1, 1]


def test_a_program_may_train_through_any_number_of_lost_steps(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl", max_steps=9)
    log_steps(Progress(metrics, Recorder()), *[Lost()] * 5)
    assert [line["reward"] for line in metrics.lines()] == [None] * 5


def test_without_a_gpu_unsloth_is_refused_with_what_to_look_at() -> None:
    with pytest.raises(JobFailed, match="nvidia-smi"):
        load_model("some/model", UnslothConfig(), seed=0)


@pytest.mark.parametrize(("train_batch", "pieces"), [(None, 1), (16, 4)])
def test_a_step_is_all_its_rollouts_however_they_are_cut(
    tmp_path: Path, train_batch: int | None, pieces: int
) -> None:
    config = GrpoConfig(train_batch=train_batch)
    made = GRPOConfig(**arguments(config, tmp_path, **step_arguments(config)))
    assert made.generation_batch_size == config.rollouts_per_step
    # One generation a step: a checkpoint is then never in the middle of a buffer of rollouts.
    assert made.steps_per_generation == made.gradient_accumulation_steps == pieces


@pytest.mark.parametrize(
    ("samples", "tasks", "batch", "at_once"), [(4, 96, 64, 64), (4, 3, 64, 12), (100, 9, 64, 100)]
)
def test_an_eval_batch_holds_whole_tasks(
    samples: int, tasks: int, batch: int, at_once: int
) -> None:
    told = eval_arguments(samples=samples, tasks=tasks, batch=batch)
    assert told == {"num_generations_eval": samples, "per_device_eval_batch_size": at_once}


def test_the_order_of_the_rows_is_passes_over_all_tasks_fixed_by_the_seed() -> None:
    order = training_order(5, 12, seed=3)
    assert order == training_order(5, 12, seed=3)
    assert len(order) == 12
    assert sorted(order[:5]) == sorted(order[5:10]) == [0, 1, 2, 3, 4]
    assert order[:5] != order[5:10]
