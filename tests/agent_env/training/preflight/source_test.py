"""A model that can't be loaded is told of by its names and headers alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_env.training.preflight.source import source_faults

NAMED = "config.model"


def tensors(path: Path, *, cut: int = 0) -> None:
    entry = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    header = json.dumps({"w": entry}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * (16 - cut))


def model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "qwen3"}')
    tensors(folder / "model.safetensors")
    return folder


def fault(source: object) -> str:
    (said,) = source_faults(str(source), NAMED)
    return said


def test_a_whole_model_and_the_one_that_sft_builds_are_fine(tmp_path: Path) -> None:
    assert list(source_faults(str(model(tmp_path / "model")), NAMED)) == []
    assert list(source_faults("tiny", NAMED)) == []


def test_a_folder_that_isnt_there_is_named_with_the_nearest_beside_it(tmp_path: Path) -> None:
    model(tmp_path / "qwen-small")
    said = f"config.model: the folder {tmp_path}/qwen-smal isn't there, did you mean 'qwen-small'?"
    assert fault(tmp_path / "qwen-smal") == said


def test_a_jobs_out_folder_is_no_model_and_the_model_in_it_is_named(tmp_path: Path) -> None:
    model(tmp_path / "out" / "model")
    said = f"config.model: {tmp_path}/out is no model, it has no config.json"
    assert fault(tmp_path / "out") == f"{said}; the model may be its folder 'model'"


def test_a_file_is_no_models_folder(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    assert "is a file, not a model's folder" in fault(tmp_path / "model.gguf")


def test_a_path_that_cant_be_is_told_in_words(tmp_path: Path) -> None:
    assert fault(tmp_path / ("x" * 300)).endswith("x can't be read: File name too long")


def test_a_config_of_nothing_makes_no_model(tmp_path: Path) -> None:
    (model(tmp_path / "m") / "config.json").write_text("{}")
    assert "config.json says no model_type" in fault(tmp_path / "m")


def test_weights_that_are_gone_or_cut_short_are_named_by_file(tmp_path: Path) -> None:
    weights = model(tmp_path / "m") / "model.safetensors"
    tensors(weights, cut=3)
    assert fault(tmp_path / "m").startswith(f"config.model: {weights} has ")
    weights.write_bytes(b"no header")
    assert fault(tmp_path / "m").startswith(f"config.model: {weights} is no safetensors file")
    weights.unlink()
    assert fault(tmp_path / "m").startswith(f"config.model: no weights in {tmp_path / 'm'}")


def test_a_shard_that_the_index_names_and_nobody_copied_is_missed(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    shards = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    tensors(folder / "model-1.safetensors")
    assert fault(folder) == f"config.model: {folder}/model-2.safetensors is missing; copy it again"


def test_an_adapter_is_as_good_as_its_base_model(tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    folder.mkdir()
    tensors(folder / "adapter_model.safetensors")
    describe = folder / "adapter_config.json"
    describe.write_text(json.dumps({"base_model_name_or_path": str(model(tmp_path / "base"))}))
    assert list(source_faults(str(folder), NAMED)) == []
    describe.write_text(json.dumps({"base_model_name_or_path": str(tmp_path / "gone")}))
    assert fault(folder).startswith("config.model: the adapter's base model: the folder")
    describe.write_text("{}")
    assert "names no base model" in fault(folder)


@pytest.mark.parametrize(
    "source", ["Qwen/Qwen3 4B", "a/b/c", "-qwen", "qwen--3", "x" * 97, "x" * 300, ""]
)
def test_what_cant_be_a_hubs_id_is_refused(source: str) -> None:
    assert "is no folder here and can't be a hub's id" in fault(source)


def test_offline_a_model_must_be_in_the_hubs_cache_and_the_nearest_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    assert list(source_faults("Qwen/Qwen3-0.6B", NAMED)) == []
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    snapshot = model(tmp_path / "models--Qwen--Qwen3-0.6B" / "snapshots" / "1f2e")
    assert list(source_faults("Qwen/Qwen3-0.6B", NAMED)) == []
    assert "did you mean 'Qwen/Qwen3-0.6B'?" in fault("Qwen/Qwen3-0.8B")
    assert "`hf download Qwen/Qwen3-0.8B`" in fault("Qwen/Qwen3-0.8B")
    tensors(snapshot / "model.safetensors", cut=1)
    assert "fetch it again with `hf download Qwen/Qwen3-0.6B`" in fault("Qwen/Qwen3-0.6B")
