"""What the trainer is told, checked against the trainer's own fields and defaults."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import TrainerControl, TrainerState
from transformers.trainer_callback import CallbackHandler
from trl import GRPOConfig

from agent_env.training.config import (
    GrpoConfig,
    UnslothConfig,
    VllmConfig,
)
from agent_env.training.gpu_memory import GpuMemory
from agent_env.training.guard import UnscoredGuard
from agent_env.training.job import JobFailed
from agent_env.training.learner import MissedEval, guard, step_arguments
from agent_env.training.metrics import MetricsFile
from agent_env.training.progress import Progress
from agent_env.training.rollouts import NO_CALL_TRUNCATED, Recorder, Tally
from agent_env.training.stopping import Stopped
from agent_env.training.trainer import arguments, eval_arguments, training_order
from agent_env.training.unsloth import load_model

pytestmark = pytest.mark.trl


class Lost:
    def get_reward(self) -> float | None:
        return None


class Scored:
    def get_reward(self) -> float | None:
        return 1.0


class Zero:
    def get_reward(self) -> float | None:
        return 0.0


def log_steps(progress: Progress, *environments: object) -> None:
    """One training step for each environment, as the trainer reports them."""
    assert isinstance(progress.recorder, Recorder)
    for step, environment in enumerate(environments, start=1):
        progress.recorder(
            completions=[""],
            completion_ids=[[0]],
            environments=[environment],
            log_metric=lambda _name, _value: None,
        )
        progress.on_log(None, SimpleNamespace(global_step=step), None, logs={"reward": None})


@pytest.mark.parametrize(("group", "share"), [(2, 1.0), (None, 0.0)])
def test_a_task_that_comes_twice_in_a_step_is_two_groups_where_their_size_is_known(
    tmp_path: Path, group: int | None, share: float
) -> None:
    recorder = Recorder()
    progress = Progress(MetricsFile(tmp_path / "metrics.jsonl", max_steps=9), recorder)
    progress.group = group
    recorder(
        completions=[""] * 4,
        completion_ids=[[0]] * 4,
        environments=[Scored(), Scored(), Zero(), Zero()],
        log_metric=lambda _name, _value: None,
        task_id=["a"] * 4,
    )
    progress.on_log(None, SimpleNamespace(global_step=1), None, logs={"reward": None})
    assert [line["flat_groups"] for line in progress.metrics.lines()] == [share]


def test_memory_is_looked_at_where_the_trainer_calls_and_told_in_the_next_line(
    tmp_path: Path,
) -> None:
    progress = Progress(MetricsFile(tmp_path / "metrics.jsonl", max_steps=9), Recorder())
    progress.memory = GpuMemory(lambda: (1, 22_000_000_001))
    handler = CallbackHandler([progress], None, None, None, None)
    handler.on_substep_end(None, TrainerState(), TrainerControl())
    progress.evaluated(0, Tally(rollouts=2, scored=2, reward=0, stderr=0), 0)
    progress.evaluated(1, Tally(rollouts=2, scored=2, reward=0, stderr=0), 0)
    assert [line.get("gpu_gb") for line in progress.metrics.lines()] == [22.0, None]


def test_a_run_ends_when_too_many_of_the_recent_rollouts_were_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["agent_env/training/grpo.py", "there/job.json"])
    monkeypatch.delenv("GPURUN_RUN", raising=False)
    metrics = MetricsFile(tmp_path / "metrics.jsonl", max_steps=9)
    progress = Progress(metrics, Recorder(), guard=UnscoredGuard(0.5, 4))
    log_steps(progress, Scored(), Scored(), Lost(), Lost())
    with pytest.raises(JobFailed, match="75% of the last 4 rollouts are unscored") as caught:
        log_steps(progress, Lost())
    assert "no reason told (3 times)" in str(caught.value)
    assert str(caught.value).endswith("python -m agent_env.training.grpo there/job.json")
    assert [line["unscored"] for line in metrics.lines()] == [0, 0, 1, 1, 1]


def test_on_a_box_the_end_names_the_command_that_shows_the_jobs_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPURUN_RUN", "r1")
    monkeypatch.setenv("GPURUN_JOB", "train")
    metrics = MetricsFile(tmp_path / "metrics.jsonl", max_steps=9)
    progress = Progress(metrics, Recorder(), guard=UnscoredGuard(0.0, 1))
    with pytest.raises(JobFailed, match=r"gpurun logs r1 train$"):
        log_steps(progress, Lost())


def test_the_outage_of_the_proof_run_does_not_end_a_run_by_default() -> None:
    config = GrpoConfig(rollouts_per_step=16)
    for lost_steps, tripped in ((2, False), (3, True)):
        watching = guard(config)
        for number in range(4 * config.rollouts_per_step):
            watching.count(number >= lost_steps * config.rollouts_per_step, "refused")
        assert bool(watching.tripped) is tripped


@pytest.mark.parametrize(
    ("thinks", "said"),
    [
        (True, "raise it (now 64), or set thinking: false if the model thinks\n"),
        (False, "before any call: raise it (now 64)\n"),
    ],
)
def test_thinking_is_not_to_be_switched_off_where_it_is_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], thinks: bool, said: str
) -> None:
    progress = Progress(MetricsFile(tmp_path / "metrics.jsonl", max_steps=9), Recorder())
    progress.may_think, progress.tokens = thinks, 64
    cut = Tally(rollouts=2, scored=2, reward=0, stderr=0, episodes={NO_CALL_TRUNCATED: 1})
    progress.evaluated(0, cut, 0)
    assert said in capsys.readouterr().out


def test_a_program_may_train_through_any_number_of_lost_steps(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl", max_steps=9)
    log_steps(Progress(metrics, Recorder()), *[Lost()] * 5)
    assert [line["reward"] for line in metrics.lines()] == [None] * 5


def test_an_eval_that_is_stopped_again_as_it_is_made_up_for_still_has_to_be_made(
    tmp_path: Path,
) -> None:
    trainer: Any = SimpleNamespace(evaluate=lambda: {}, stop=SimpleNamespace(asked=True))
    missed = MissedEval(trainer, MetricsFile(tmp_path / "metrics.jsonl", max_steps=9))
    told = SimpleNamespace(eval_strategy="steps", eval_steps=3)
    with pytest.raises(Stopped):
        missed.on_train_begin(told, SimpleNamespace(global_step=3), None)


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


def test_settings_that_are_left_out_are_left_to_the_trainer(tmp_path: Path) -> None:
    config = GrpoConfig()
    made = GRPOConfig(**arguments(config, tmp_path, **step_arguments(config)))
    told = (made.chat_template_kwargs, made.use_vllm, made.loss_type, made.scale_rewards)
    assert (*told, made.report_to) == (None, False, "dapo", "group", [])


def test_settings_reach_the_trainer_under_its_own_names(tmp_path: Path) -> None:
    config = GrpoConfig(
        thinking=False,
        vllm=VllmConfig(gpu_memory_share=0.4, max_seq_tokens=2048),
        loss_type="dr_grpo",
        scale_rewards="none",
        report_to=("trackio",),
    )
    made = GRPOConfig(**arguments(config, tmp_path, **step_arguments(config)))
    assert made.chat_template_kwargs == {"enable_thinking": False}
    assert (made.use_vllm, made.vllm_mode) == (True, "colocate")
    assert (made.vllm_gpu_memory_utilization, made.vllm_max_model_length) == (0.4, 2048)
    assert (made.loss_type, made.scale_rewards, made.report_to) == ("dr_grpo", "none", ["trackio"])
