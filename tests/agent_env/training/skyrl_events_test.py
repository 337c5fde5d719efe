"""SkyRL's events become our metrics lines, and a stop that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_env.training.metrics import MetricsFile
from agent_env.training.summary import training_numbers
from tests.agent_env.training import skyrl_support  # noqa: F401 - makes SkyRL importable

pytestmark = pytest.mark.skyrl


BASE = ("t", "step", "max_steps", "kind", "reward", "rollouts", "scored", "unscored")


def event(step: int, **told: Any) -> Any:
    from skyrl.train.utils.callbacks import CallbackInput  # noqa: PLC0415

    return CallbackInput(global_step=step, epoch=0, total_steps=5, steps_per_epoch=2, **told)


def test_events_become_metrics_lines_and_a_resumed_runs_are_cut_back(tmp_path: Path) -> None:
    from agent_env.training.skyrl.callbacks import TRAIN_NUMBERS, MetricsLines  # noqa: PLC0415

    path = tmp_path / "metrics.jsonl"
    lines = MetricsLines(path)
    evaluated = {
        "eval/all/env/rollouts": 8.0,
        "eval/all/env/scored": 6.0,
        "eval/all/env/unscored": 0.5,
        "eval/all/env/reward_mean": 0.7,
    }
    evaluated |= {"eval/all/score/near": 0.7, "eval/all/environment/turns": 2.0}
    trained = {"env/rollouts": 4.0, "env/scored": 4.0, "env/reward_mean": 0.5, "timing/step": 9.0}
    trained |= {"env/tool_calls": 3.0, "generate/avg_num_tokens": 50.0}
    lines.on_train_start(None, event(0), None)
    lines.on_eval_end(None, event(0, metrics=evaluated), None)
    lines.on_log(None, event(0, logs=evaluated), None)
    lines.on_log(None, event(1, logs=trained), None)
    lines.on_log(None, event(2, logs=trained), None)
    # Two batches of an eval: SkyRL added their shares up.
    assert evaluated["eval/all/env/unscored"] == 0.25
    MetricsLines(path).on_train_start(None, event(1), None)
    first, second = MetricsFile(path, max_steps=5).lines()
    assert (first["kind"], first["step"], first["reward"]) == ("eval", 0, 0.7)
    assert (first["scored"], first["unscored"], first["score/near"]) == (6, 2, 0.7)
    assert set(first) == {*BASE, "seconds", "score/near"}
    assert set(second) == {*BASE, *TRAIN_NUMBERS, "env/tool_calls"}
    told = training_numbers([first, second])
    assert (told["tool_calls"], told["tokens"], told["step_seconds"]) == (3, 50, 9)
    assert (second["kind"], second["step"], second["seconds"]) == ("train", 1, 9.0)


def test_a_stop_is_a_checkpoint_at_the_steps_end_and_then_the_end(tmp_path: Path) -> None:
    from skyrl.train.utils.callbacks import TrainingControl  # noqa: PLC0415

    from agent_env.training.skyrl.callbacks import StopAtStepEnd, StoppedHere  # noqa: PLC0415

    stop, control = StopAtStepEnd(tmp_path / "stop"), TrainingControl()
    stop.on_step_end(None, event(1), control)
    stop.on_save(None, event(1), control)
    assert not control.should_save
    (tmp_path / "stop").touch()
    stop.on_step_end(None, event(2), control)
    assert control.should_save
    assert not stop.answered
    with pytest.raises(StoppedHere):
        stop.on_save(None, event(2), control)
    assert stop.answered
