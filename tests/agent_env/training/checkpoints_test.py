"""Only a complete checkpoint is gone on from: the trainer would take a broken one in silence."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from agent_env.training.checkpoints import checkpoint_step, latest_complete_checkpoint


def tensors(path: Path, *, data_bytes: int = 16) -> None:
    entry = {"dtype": "F32", "shape": [data_bytes // 4], "data_offsets": [0, data_bytes]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "w": entry}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * data_bytes)


def checkpoint(out: Path, step: int) -> Path:
    folder = out / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    tensors(folder / "model.safetensors")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("data.pkl", b"state" * 50)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return folder


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def test_without_a_checkpoint_a_run_starts_at_the_beginning(tmp_path: Path) -> None:
    assert latest_complete_checkpoint(tmp_path / "never-made") is None


def test_the_highest_step_wins_not_the_last_name_or_the_newest_file(tmp_path: Path) -> None:
    newest = checkpoint(tmp_path, 100)
    checkpoint(tmp_path, 20)
    checkpoint(tmp_path, 9)
    assert latest_complete_checkpoint(tmp_path) == newest
    assert checkpoint_step(newest) == 100


@pytest.mark.parametrize(
    "name",
    ["trainer_state.json", "model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"],
)
def test_a_checkpoint_that_lacks_a_file_is_passed_over(tmp_path: Path, name: str) -> None:
    older, newer = checkpoint(tmp_path, 10), checkpoint(tmp_path, 20)
    (newer / name).unlink()
    assert latest_complete_checkpoint(tmp_path) == older


@pytest.mark.parametrize(
    "name",
    ["trainer_state.json", "model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"],
)
def test_a_checkpoint_with_a_cut_file_is_passed_over(tmp_path: Path, name: str) -> None:
    older, newer = checkpoint(tmp_path, 10), checkpoint(tmp_path, 20)
    cut(newer / name)
    assert latest_complete_checkpoint(tmp_path) == older


def test_a_checkpoint_in_a_folder_of_another_step_is_passed_over(tmp_path: Path) -> None:
    checkpoint(tmp_path, 10).rename(tmp_path / "checkpoint-30")
    assert latest_complete_checkpoint(tmp_path) is None


def test_other_folders_are_not_taken_for_checkpoints(tmp_path: Path) -> None:
    checkpoint(tmp_path, 10).rename(tmp_path / "checkpoint-best")
    (tmp_path / "model").mkdir()
    assert latest_complete_checkpoint(tmp_path) is None


def test_an_adapter_counts_as_weights(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, 10)
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    assert latest_complete_checkpoint(tmp_path) == folder


def test_a_model_in_shards_is_complete_with_all_of_them(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, 10)
    (folder / "model.safetensors").rename(folder / "model-00001.safetensors")
    shards = {"a": "model-00001.safetensors", "b": "model-00002.safetensors"}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": shards}))
    assert latest_complete_checkpoint(tmp_path) is None
    tensors(folder / "model-00002.safetensors")
    assert latest_complete_checkpoint(tmp_path) == folder


@pytest.mark.parametrize(
    "junk", [b"", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0[]", b"\x02\0\0\0\0\0\0\0{}x"]
)
def test_weights_that_are_no_safetensors_are_not_weights(tmp_path: Path, junk: bytes) -> None:
    (checkpoint(tmp_path, 10) / "model.safetensors").write_bytes(junk)
    assert latest_complete_checkpoint(tmp_path) is None
