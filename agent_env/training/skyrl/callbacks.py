"""From SkyRL's events to our metrics lines, a model at the end, and an end when a file asks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from skyrl.train.utils.callbacks import TrainingCallback

from agent_env.training.metrics import MetricsFile

TRAIN_NUMBERS = {
    "reward": "env/reward_mean",
    "loss": "policy/policy_loss",
    "grad_norm": "policy/grad_norm",
    "learning_rate": "policy/policy_lr",
    "entropy": "policy/policy_entropy",
    "tokens": "generate/avg_num_tokens",
    "seconds": "timing/step",
}
"""Our name and SkyRL's."""
EVAL = "eval/all/"
_COUNTED = frozenset({"env/rollouts", "env/scored", "env/unscored", "env/reward_mean"})
"""What a line has under names of its own."""


class StoppedHere(Exception):
    """The run was asked to stop, and has its checkpoint."""


class MetricsLines(TrainingCallback):  # type: ignore[misc]
    """A line for each step and each eval; those after the checkpoint it goes on from are cut."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_train_start(self, _trainer: Any, callback_input: Any, _control: Any) -> None:
        self._file(callback_input).cut_back(callback_input.global_step or -1)

    def on_eval_end(self, _trainer: Any, callback_input: Any, _control: Any) -> None:
        metrics = callback_input.metrics or {}
        reward, seconds = (
            metrics.get(f"{EVAL}env/reward_mean"),
            metrics.get("timing/eval_generate"),
        )
        numbers = {"reward": reward, "seconds": seconds}
        self._write("eval", callback_input, numbers, metrics, EVAL)

    def on_save(self, trainer: Any, callback_input: Any, _control: Any) -> None:
        # Whatever ends the run before SkyRL logs the step: it isn't trained again.
        if "env/rollouts" in trainer.all_metrics:
            self._trained(callback_input, trainer.all_metrics)

    def on_log(self, _trainer: Any, callback_input: Any, _control: Any) -> None:
        logs = callback_input.logs
        # SkyRL adds up over the batches of an eval what isn't called a mean.
        if f"{EVAL}env/rollouts" in logs:
            told = counts(logs, EVAL)
            logs[f"{EVAL}env/unscored"] = told["unscored"] / max(1, told["rollouts"])
        if "env/rollouts" in logs:
            self._trained(callback_input, logs)

    def _trained(self, callback_input: Any, logs: Mapping[str, Any]) -> None:
        """The step's line, in the place of the one that was there when it was saved."""
        numbers = {ours: logs.get(theirs) for ours, theirs in TRAIN_NUMBERS.items()}
        self._write("train", callback_input, numbers, logs)

    def _write(
        self,
        kind: Any,
        callback_input: Any,
        numbers: Mapping[str, Any],
        told: Mapping[str, Any],
        prefix: str = "",
    ) -> None:
        """`numbers`, and what the rollouts were like."""
        more = {
            name.removeprefix(prefix): value
            for name, value in told.items()
            if name.startswith((f"{prefix}env/", f"{prefix}score/"))
        }
        values = {**numbers, **{name: more[name] for name in more.keys() - _COUNTED}}
        plain = {name: None if value is None else float(value) for name, value in values.items()}
        at, line = callback_input.global_step, {**plain, **counts(told, prefix)}
        self._file(callback_input).replace(kind, at, line, datetime.now(UTC))

    def _file(self, callback_input: Any) -> MetricsFile:
        steps = max(callback_input.total_steps, callback_input.global_step)
        return MetricsFile(self._path, max_steps=steps)


class ModelAtEnd(TrainingCallback):  # type: ignore[misc]
    """After the last step the model is left in that folder, whole or not at all.

    SkyRL's own exports come with the end of every epoch.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_train_end(self, trainer: Any, callback_input: Any, _control: Any) -> None:
        settings, step = trainer.cfg.trainer, callback_input.global_step
        if step == settings.max_training_steps and not self._folder.exists():
            trainer.save_models()
            made = Path(settings.export_path) / f"global_step_{step}" / "policy"
            made.rename(self._folder)


class StopAtStepEnd(TrainingCallback):  # type: ignore[misc]
    """When the file is there: a checkpoint at the end of the step, then no other step."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def answered(self) -> bool:
        """Whether the run ended because of it."""
        return self._done.exists()

    def on_step_end(self, _trainer: Any, _callback_input: Any, control: Any) -> None:
        control.should_save = control.should_save or self._path.exists()

    def on_save(self, _trainer: Any, _callback_input: Any, _control: Any) -> None:
        if self._path.exists():
            self._done.touch()
            raise StoppedHere("asked to stop: there is a checkpoint, and no step after it")

    @property
    def _done(self) -> Path:
        return self._path.with_suffix(".answered")


def counts(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, int]:
    """Rollouts, scored and not."""
    rollouts, scored = (
        int(metrics.get(f"{prefix}env/{name}", 0)) for name in ("rollouts", "scored")
    )
    return {"rollouts": rollouts, "scored": scored, "unscored": rollouts - scored}
