"""What verl is given before a run: its reader of the dataset, its config, and our own checks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_env.client import AgentEnv
from agent_env.errors import AtCapacity
from agent_env.training.config import ConfigError
from agent_env.training.verl import LoopSettings, check, rows, score_ids, write_dataset
from agent_env.training.verl.preflight import node_faults
from tests.agent_env.conftest import COUNTER

pytestmark = [pytest.mark.verl, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def env() -> Iterator[AgentEnv]:
    with AgentEnv.local([COUNTER, "inbox"], max_sessions=4) as client:
        yield client


@pytest.fixture(scope="module")
def harness() -> Any:
    from tests.agent_env.training import verl_harness  # noqa: PLC0415

    return verl_harness


def test_rows_of_two_bundles_come_out_of_verls_own_dataset_as_they_went_in(
    tmp_path: Path, env: AgentEnv, harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from verl.utils.dataset.rl_dataset import RLHFDataset  # noqa: PLC0415

    train = [split for split in env.splits if split.endswith("train")]
    given = rows(env, *train)
    assert {row["data_source"] for row in given} == {"counter", "inbox"}
    cache = str(tmp_path / "cache")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", cache)
    config = harness.composed(harness.verl_run(tmp_path), f"+data.cache_dir={cache}").data
    file = write_dataset(tmp_path / "train.parquet", given)
    read = RLHFDataset(str(file), harness.byte_tokenizer(), config)
    assert len(read) == len(given)
    for row, was in zip(read, given, strict=True):
        assert row["raw_prompt"] == was["prompt"]
        assert (row["agent_name"], row["data_source"]) == ("agent_env", was["data_source"])
        assert row["extra_info"] == was["extra_info"]
        assert row["index"] == was["extra_info"]["index"]
        assert json.loads(row["task"]) == json.loads(was["task"])


def test_every_setting_is_one_that_verl_knows_and_passes_its_own_checks(
    tmp_path: Path, harness: Any
) -> None:
    from verl.trainer.ppo.utils import need_critic, need_reference_policy  # noqa: PLC0415
    from verl.utils.config import validate_config  # noqa: PLC0415

    odd = tmp_path / "it's a folder, with = and [odd] names"
    # LoRA is looked at by vLLM's own code, which isn't here.
    run = harness.verl_run(odd, nodes=2, gpus=2, kl_weight=0.1, thinking=False, workers=8)
    assert harness.composed(replace(run, lora_rank=8)).actor_rollout_ref.model.lora_rank == 8
    harness.write_model(Path(run.model))
    config = harness.composed(run)
    assert config.data.train_files == [str(run.train_file)]
    assert config.actor_rollout_ref.rollout.agent.agent_loop_config_path == str(run.loop_file)
    assert config.transfer_queue.backend.SimpleStorage.num_data_storage_units == 4
    assert config.algorithm.adv_estimator == "grpo"
    assert config.data.apply_chat_template_kwargs.enable_thinking is False
    validate_config(
        config=config,
        use_reference_policy=need_reference_policy(config),
        use_critic=need_critic(config),
    )
    assert need_reference_policy(config)
    assert not need_critic(config)


def test_scores_are_those_that_the_tasks_record(env: AgentEnv) -> None:
    counted, mails = (
        score_ids(env, [split for split in env.splits if split.startswith(name)][:1])
        for name in ("counter", "inbox")
    )
    assert counted == ("near",)
    assert mails
    assert "near" not in mails


def test_what_doesnt_fit_is_told_before_anything_is_loaded(
    tmp_path: Path, env: AgentEnv, harness: Any
) -> None:
    run = harness.verl_run(tmp_path, prompt_tokens=300, nodes=2, workers=8, own_ray=False)
    settings = LoopSettings(url=env.url, sessions=4)
    given = [*rows(env, "counter/train"), {"prompt": [], "extra_info": {"index": 0}}]
    with pytest.raises(ConfigError) as caught:
        check(run, settings, env, given, harness.byte_tokenizer(), cpus=4)
    assert [fault.split(":")[0] for fault in caught.value.faults] == [
        "cpus",
        "url",
        "sessions",
        "rows",
        "prompt_tokens",
    ]
    assert caught.value.faults[-2].startswith("rows: 1 of 5 name no split and index")
    assert "counter/train[0]" in caught.value.faults[-1]


def test_a_run_that_fits_passes_and_one_over_the_servers_capacity_doesnt(
    tmp_path: Path, env: AgentEnv, harness: Any
) -> None:
    run = harness.verl_run(tmp_path)
    given = rows(env, "counter/train")
    check(run, LoopSettings(url=env.url, sessions=4), env, given, harness.byte_tokenizer(), cpus=5)
    with pytest.raises(AtCapacity, match="--max-sessions 5"):
        check(
            run,
            LoopSettings(url=env.url, sessions=5),
            env,
            given,
            harness.byte_tokenizer(),
            cpus=5,
        )


def test_a_host_name_is_an_address_for_every_node(tmp_path: Path, harness: Any) -> None:
    run = harness.verl_run(tmp_path, nodes=2)
    settings = LoopSettings(url="http://env.internal:8000", sessions=4)
    assert node_faults(run, settings, cpus=8) == []


def test_a_rollout_outwaits_the_place_of_one_that_broke_off() -> None:
    from agent_env.client._preflight import HELD_S  # noqa: PLC0415

    assert LoopSettings(url="http://127.0.0.1:1", sessions=1).patience > HELD_S
