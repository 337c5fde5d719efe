"""The program verl_grpo, as far as a machine without a GPU reaches: refusals, files, metrics."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_env.client import AgentEnv
from agent_env.client.local import LocalServer
from agent_env.training.config import ConfigError, VerlGrpoConfig, parse_config
from agent_env.training.job import Job, JobFailed
from agent_env.training.metrics import MetricsFile
from agent_env.training.programs import verl_grpo
from agent_env.training.stopping import StopRequest
from agent_env.training.verl import checkpoints
from agent_env.training.verl.peer import REFUSED
from agent_env.training.verl.progress import Progress, cut_back, losses
from tests.agent_env.conftest import COUNTER
from tests.agent_env.training.ray_checkpoints_test import save

pytestmark = [pytest.mark.verl, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def harness() -> Any:
    from tests.agent_env.training import verl_harness  # noqa: PLC0415

    return verl_harness


@pytest.fixture
def job(tmp_path: Path) -> Job[VerlGrpoConfig]:
    values = {"bundle": str(COUNTER), "split": "train", "eval_split": "eval", "model": "a/b"}
    sizes = {"steps": 2, "rollouts_per_step": 8, "rollouts_per_task": 4}
    return Job(
        config=parse_config(VerlGrpoConfig, values | sizes),
        out=tmp_path / "out",
        metrics=tmp_path / "metrics.jsonl",
        inputs={},
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"unsloth": True}, "config.unsloth: verl loads models itself"),
        ({"train_batch": 8}, "config.train_batch: verl fills its backward passes by tokens"),
        ({"lora": {"four_bit": True}}, "config.lora: verl takes rank and alpha"),
        ({"nodes": 2}, "config.env_url: 2 nodes need a server on an address"),
        ({"nodes": 2, "env_url": "http://127.0.0.1:1"}, "config.env_url: 2 nodes need"),
        ({"schedule": "linear"}, "config.schedule: input should be 'constant'"),
    ],
)
def test_what_verl_cant_do_is_refused_by_field(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_config(VerlGrpoConfig, values)


def test_without_a_gpu_the_program_ends_at_once_and_says_so(tmp_path: Path, harness: Any) -> None:
    model = harness.write_model(tmp_path / "model")
    splits = {"split": "train", "eval_split": "eval"}
    job = {
        "config": {"bundle": str(COUNTER), "model": str(model), **splits},
        "out": str(tmp_path / "out"),
        "metrics": str(tmp_path / "metrics.jsonl"),
    }
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job))
    done = subprocess.run(
        [sys.executable, "-m", "agent_env.training.verl_grpo", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert said.startswith("verl: trains on an NVIDIA GPU")


def test_a_server_that_is_too_small_is_told_by_the_fields_that_ask_for_more(
    tmp_path: Path, harness: Any, job: Job[VerlGrpoConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verl_grpo, "_machine_faults", lambda _: [])
    model = str(harness.write_model(tmp_path / "model"))
    with LocalServer(COUNTER, max_sessions=4) as server:
        here = {"model": model, "env_url": server.url, "batch": 8, "prompt_tokens": 2048}
        small = job.model_copy(update={"config": job.config.model_copy(update=here)})
        with pytest.raises(ConfigError) as caught:
            verl_grpo.run(small, StopRequest())
    (said,) = caught.value.faults
    assert said.startswith("config.rollouts_per_step: training plays 8 rollouts at once (an eval")
    assert said.endswith("--max-sessions 8, or set rollouts_per_step and batch to 4 at most")


def test_verls_numbers_and_the_recorded_rollouts_become_our_lines(tmp_path: Path) -> None:
    told, record = tmp_path / "verl.jsonl", tmp_path / "rollouts.jsonl"
    metrics = MetricsFile(tmp_path / "metrics.jsonl", max_steps=2)
    progress = Progress(told, record, metrics)
    progress.look()
    played = [
        rollout("eval", 0, 0.25),
        rollout("train", 1, 1.0),
        rollout("train", 1, 0.5),
        rollout("train", 1, None),
        rollout("train", 2, 0.0),
    ]
    record.write_text("".join(json.dumps(line) + "\n" for line in played))
    told.write_text(
        json.dumps({"step": 0, "data": {"val-core/counter/reward/mean@1": 0.25}})
        + "\n"
        + json.dumps({"step": 1, "data": {"timing_s/step": 3.5, "actor/pg_loss": 0.125}})
        + '\n{"step": 2, "data"'
    )
    progress.look()
    progress.look()
    assert metrics.reward_at(0) == 0.25
    step = metrics.find("train", 1) or {}
    assert (step["reward"], step["scored"], step["unscored"]) == (0.75, 2, 1)
    assert (step["loss"], step["seconds"]) == (0.125, 3.5)
    assert step["score/near"] == 0.75
    assert len(metrics.lines()) == 2  # the line that verl is still writing waits


def test_a_resumed_run_forgets_the_rollouts_that_it_plays_again(tmp_path: Path) -> None:
    record = tmp_path / "rollouts.jsonl"
    lines = [rollout("train", step, None if step == 1 else 1.0) for step in (1, 2, 3)]
    record.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 4')
    cut_back(record, 2, evaluated=False)
    assert [json.loads(line)["step"] for line in record.read_text().splitlines()] == [1, 2]
    assert losses(record) == "1 of the last 2 rollouts were lost, mostly: gone"


@pytest.mark.parametrize(
    ("saved", "logged", "begins_with_eval", "evals"),
    [
        (0, [], "true", 0),
        (0, ["eval 0"], "false", 1),  # died before its first checkpoint: not evaluated twice
        (1, ["eval 0", "train 1"], "false", 1),  # no eval is due there
        (2, ["eval 0", "train 1"], "true", 1),  # died between the last checkpoint and its eval
        (2, ["eval 0", "train 1", "train 2", "eval 2"], None, 2),  # there is nothing left to do
    ],
)
def test_a_run_that_goes_on_repeats_and_skips_no_line(
    job: Job[VerlGrpoConfig],
    monkeypatch: pytest.MonkeyPatch,
    saved: int,
    logged: list[str],
    begins_with_eval: str | None,
    evals: int,
) -> None:
    words: list[str] = []

    def without_a_gpu(given: list[str], **_: Any) -> int:
        words.extend(given)
        return 0

    monkeypatch.setattr("agent_env.training.verl.child.run", without_a_gpu)
    folder = job.out / "verl"
    folder.mkdir(parents=True)
    if saved:
        save(job.out / f"global_step_{saved}", checkpoints.LAST_PART)
    metrics = MetricsFile(job.metrics, max_steps=2)
    for line in logged:
        kind, step = line.split()
        metrics.append(kind, int(step), {"reward": 0.5}, datetime.now(UTC))  # type: ignore[arg-type]
    played = [rollout("eval", 0, 0.5), rollout("train", 1, 0.5), rollout("train", 2, 0.25)]
    played += [rollout("eval", 2, 0.5)]
    record = folder / "rollouts.jsonl"
    record.write_text("".join(json.dumps(line) + "\n" for line in played))
    verl_grpo._train(job, verl_grpo.verl_run(job, folder, "hermes"), folder)
    wanted = [f"trainer.val_before_train={begins_with_eval}"] if begins_with_eval else []
    assert [word for word in words if word.startswith("trainer.val_before_train")] == wanted
    kept = [json.loads(line)["purpose"] for line in record.read_text().splitlines()]
    assert kept.count("eval") == evals
    lines = metrics.lines()
    assert [line["step"] for line in lines if line["kind"] == "train"] == list(range(1, saved + 1))
    if saved == 2 and "train 2" not in logged:
        assert lines[-1]["reward"] == 0.25  # of the rollouts that it was trained on


def test_a_worker_that_plays_no_more_ends_the_run(tmp_path: Path) -> None:
    told, record = tmp_path / "verl.jsonl", tmp_path / "rollouts.jsonl"
    metrics = MetricsFile(tmp_path / "metrics.jsonl", max_steps=2)
    refused = rollout("train", 1, None) | {"lost": f"{REFUSED}: 60% of the last 8"}
    played = [rollout("train", 1, 1.0), refused]
    record.write_text("".join(json.dumps(line) + "\n" for line in played))
    told.write_text(json.dumps({"step": 1, "data": {"timing_s/step": 3.5}}) + "\n")
    with pytest.raises(JobFailed, match="60% of the last 8; mend the env server, then go on from"):
        Progress(told, record, metrics).look()
    assert (metrics.find("train", 1) or {})["unscored"] == 1


def test_checkpoints_of_other_tools_are_not_gone_on_with(job: Job[VerlGrpoConfig]) -> None:
    other = job.model_copy(update={"config": job.config.model_copy(update={"split": "turns"})})
    with AgentEnv.local(COUNTER, max_sessions=2) as env:
        verl_grpo.check_environment(job, env)
        verl_grpo.check_environment(other, env)
        save(job.out / "global_step_1", checkpoints.LAST_PART)
        with pytest.raises(ConfigError, match="training on other tools"):
            verl_grpo.check_environment(job, env)


def test_the_last_steps_weights_become_the_jobs_model(tmp_path: Path) -> None:
    assert checkpoints.export(tmp_path, 2) is None
    weights = tmp_path / "global_step_2/actor/huggingface"
    weights.mkdir(parents=True)
    (weights / "model.safetensors").write_bytes(b"x")
    assert checkpoints.export(tmp_path, 2) == tmp_path / "model"
    assert (tmp_path / "model/model.safetensors").exists()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_verl_itself_takes_what_it_is_told_as_far_as_to_look_for_a_gpu(
    tmp_path: Path,
    harness: Any,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(verl_grpo, "_machine_faults", lambda _: [])
    values = {
        **{"bundle": str(COUNTER), "split": "train", "eval_split": "eval"},
        **{"steps": 2, "rollouts_per_step": 8, "rollouts_per_task": 4, "batch": 8},
        **{"model": str(harness.write_model(tmp_path / "model")), "prompt_tokens": 2048},
    }
    job: Job[VerlGrpoConfig] = Job(
        config=parse_config(VerlGrpoConfig, values),
        out=tmp_path / "out",
        metrics=tmp_path / "metrics.jsonl",
        inputs={},
    )
    with pytest.raises(JobFailed, match="verl ended with exit status 1; its own words are above"):
        verl_grpo.run(job, StopRequest())
    out, err = capfd.readouterr()
    assert "Total available GPUs 0 is less than total desired GPUs 1" in out + err
    (loop,) = yaml.safe_load((tmp_path / "out/verl/loop.yaml").read_text())
    assert (loop["scores"], loop["sessions"], loop["unscored_rollouts"]) == (["near"], 8, 8)
    assert not list((tmp_path / "out").rglob("*token")), "a secret among the results"


def rollout(purpose: str, step: int, reward: float | None) -> dict[str, Any]:
    """A line of the record."""
    return {
        "purpose": purpose,
        "step": step,
        "task_id": f"{purpose}-0",
        "bundle": "counter",
        "split": purpose,
        "reward": reward,
        "lost": "gone" if reward is None else None,
        "scores": {} if reward is None else {"near": reward},
    }
