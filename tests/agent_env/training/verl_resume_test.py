"""verl's own trainer, ended after any step and begun again: its checkpoint, its rows' order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_env.training.verl import checkpoints, write_dataset

pytestmark = [pytest.mark.verl, pytest.mark.filterwarnings("ignore")]

STEPS = 7  # of two rows each, out of five: three epochs and a half, a row left out of each


class Weights:
    """Stands for the actor on its GPUs: how many steps it has been trained."""

    def __init__(self) -> None:
        self.steps = 0

    def save_checkpoint(self, folder: str, _remote: None, step: int, **_: Any) -> None:
        self.steps += 1
        assert step == self.steps
        Path(folder).mkdir(parents=True)
        (Path(folder) / "steps").write_text(str(step))

    def load_checkpoint(self, local_path: str, **_: Any) -> None:
        self.steps = int((Path(local_path) / "steps").read_text())


class Training:
    """verl's trainer of one process, as far as it needs no GPU; it saves after each step."""

    def __init__(self, config: Any, tokenizer: Any) -> None:
        from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync  # noqa: PLC0415

        self._trainer: Any = PPOTrainerSync(config)
        self._trainer.tokenizer, self._trainer.processor = tokenizer, None
        self._trainer.actor_rollout_wg = Weights()
        self._trainer._init_dataloader()
        self._trainer._load_checkpoint()

    @property
    def step(self) -> int:
        """The one that it goes on from, of its own counter and of the weights."""
        assert self._trainer.global_steps == self._trainer.actor_rollout_wg.steps
        return int(self._trainer.global_steps)

    def train(self, until: int) -> list[list[int]]:
        """The rows of each step."""
        rows = []
        while self._trainer.global_steps < until:
            self._trainer.global_steps += 1
            rows.append([int(index) for index in self._trainer._next_train_batch()["index"]])
            self._trainer._save_checkpoint()
        return rows


def test_an_interrupted_run_has_the_rows_of_an_undisturbed_one_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.agent_env.training import verl_harness  # noqa: PLC0415

    tokenizer = verl_harness.byte_tokenizer()
    cache = str(tmp_path / "cache")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", cache)

    def training(out: Path) -> Training:
        run = verl_harness.verl_run(tmp_path, out=out, steps=STEPS, save_steps=1, seed=3)
        return Training(verl_harness.composed(run, f"+data.cache_dir={cache}"), tokenizer)

    for name in ("train.parquet", "val.parquet"):
        write_dataset(tmp_path / name, [row(index) for index in range(5)])
    undisturbed = training(tmp_path / "undisturbed").train(STEPS)
    assert len({tuple(rows) for rows in undisturbed}) > 3
    for step in range(1, STEPS):
        out = tmp_path / str(step)
        before = training(out).train(step)
        cut_short(out, step + 1)
        assert checkpoints.settle(out) == step
        again = training(out)
        assert again.step == step
        assert before + again.train(STEPS) == undisturbed


def cut_short(out: Path, step: int) -> None:
    """What a crash in the step's save leaves, and in that of the tracker."""
    (out / f"global_step_{step}" / "actor").mkdir(parents=True)
    (out / f"global_step_{step}" / "data.pt").write_bytes(b"PK cut")
    (out / checkpoints.TRACKER).write_text("")


def row(index: int) -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": f"Task {index}."}],
        "data_source": "counter",
        "agent_name": "agent_env",
        "task": "{}",
        "extra_info": {"index": index, "split": "train"},
    }
