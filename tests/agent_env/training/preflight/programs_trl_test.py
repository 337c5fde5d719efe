"""Each program looks before it loads: the models here have weights that nothing could load."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from agent_env import AgentEnv
from agent_env.client.local import LocalServer
from agent_env.training import models, tiny, trained_on
from agent_env.training.config import CONFIGS, ConfigError, EvaluateConfig, parse_config
from agent_env.training.job import read_job, run_program
from agent_env.training.preflight import check_machine
from agent_env.training.stopping import StopRequest
from agent_env.training.trained_on import RECORD
from tests.agent_env.training.checkpoints_test import checkpoint
from tests.agent_env.training.preflight.template_trl_test import known, unloadable

pytestmark = pytest.mark.trl

PROGRAMS = ("sft", "grpo", "evaluate", "outage")
Run = Callable[..., None]


@pytest.fixture(scope="module")
def env() -> Iterator[AgentEnv]:
    with AgentEnv.local("gridsim", max_sessions=65) as client:
        yield client


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A program's job in this process, on the model there; other programs' imports are kept."""

    def run(program: str, source: str, **config: Any) -> None:
        job = {
            "config": config | {"model": source},
            "out": str(tmp_path / "out"),
            "metrics": str(tmp_path / "metrics.jsonl"),
        }
        (tmp_path / "job.json").write_text(json.dumps(job))
        module = import_module(f"agent_env.training.programs.{program}")
        module.run(read_job(tmp_path / "job.json", CONFIGS[program]), StopRequest())

    return run


def model(folder: Path, template: str) -> str:
    tokenizer = tiny.build_tokenizer([[{"role": "user", "content": "hi"}]], [])
    tokenizer.chat_template, tokenizer.response_template = template, None
    return unloadable(folder, tokenizer)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_model_that_cant_call_tools_is_refused_before_it_is_loaded(
    tmp_path: Path, run: Run, env: AgentEnv, program: str
) -> None:
    url = {} if program == "outage" else {"env_url": env.url}
    with pytest.raises(ConfigError, match=r"^config\.model: its chat template can't show tool"):
        run(program, model(tmp_path / "m", known("llama3")), **url)


@pytest.mark.parametrize(
    ("program", "also", "needs", "limit"),
    [
        ("sft", ", 1 more for the expert", 73, 64),
        ("grpo", " (training 64)", 72, 65),
        ("evaluate", "", 72, 65),
    ],
)
def test_a_server_that_has_no_room_is_told_before_the_model_is_loaded(
    tmp_path: Path, run: Run, env: AgentEnv, program: str, also: str, needs: int, limit: int
) -> None:
    with pytest.raises(ConfigError) as refused:
        run(program, model(tmp_path / "m", known("qwen3")), env_url=env.url, batch=72)
    assert str(refused.value) == (
        f"config.batch: an eval plays 72 rollouts at once{also}; the server has 65 sessions:"
        f" start it with --max-sessions {needs}, or set batch to {limit} at most"
    )


def test_a_split_that_isnt_there_is_told_before_the_model_is_loaded(
    tmp_path: Path, run: Run, env: AgentEnv
) -> None:
    with pytest.raises(ConfigError, match=r"config\.split: gridsim has no split 'corse-train'"):
        run("grpo", model(tmp_path / "m", ""), env_url=env.url, split="corse-train")


def test_a_checkpoint_of_other_tools_isnt_gone_on_with(
    tmp_path: Path, run: Run, env: AgentEnv
) -> None:
    out = tmp_path / "out"
    checkpoint(out, 40)
    trained_on.write(out, trained_on.now_served(env, ["coarse-train", "coarse-eval"]))
    record = json.loads((out / RECORD).read_text())
    record["bundles"]["gridsim"]["tools"]["coarse-train"]["look"] = "0"
    (out / RECORD).write_text(json.dumps(record))
    with pytest.raises(ConfigError, match=r"checkpoint-40 .*coarse-train: look is gone\. St"):
        run("grpo", model(tmp_path / "m", known("qwen3")), env_url=env.url)


def test_a_saved_model_carries_what_its_job_was_trained_on(tmp_path: Path, env: AgentEnv) -> None:
    record = trained_on.now_served(env, ["coarse-train"])
    trained_on.write(tmp_path, record)
    tokenizer = tiny.build_tokenizer([[{"role": "user", "content": "hi"}]], [])
    models.save_model(tiny.build_model(tokenizer), tokenizer, tmp_path / "model")
    assert trained_on.read(tmp_path / "model") == record


@pytest.mark.parametrize(
    ("program", "config"), [("grpo", {"lora": True}), ("sft", {"unsloth": True})]
)
def test_new_adapters_on_adapters_are_refused_as_they_would_be_saved_without_those(
    tmp_path: Path, program: str, config: dict[str, Any]
) -> None:
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "some/model"}')
    told = parse_config(CONFIGS[program], config | {"model": str(tmp_path)})
    (setting,) = config
    with pytest.raises(ConfigError, match=rf"config\.{setting}: .* has adapters itself"):
        check_machine(str(tmp_path), told)
    alone = parse_config(EvaluateConfig, {"model": str(tmp_path), "lora": True})
    with pytest.raises(ConfigError) as caught:
        check_machine(str(tmp_path), alone)
    assert "has adapters itself" not in str(caught.value)


def test_a_server_that_doesnt_answer_fails_the_job_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with LocalServer("gridsim") as server:
        gone = server.url
    config = {"model": model(tmp_path / "m", known("qwen3")), "env_url": gone}
    job = {"config": config, "out": str(tmp_path / "out"), "metrics": str(tmp_path / "m.jsonl")}
    (tmp_path / "job.json").write_text(json.dumps(job))
    monkeypatch.setattr(sys, "argv", ["evaluate", str(tmp_path / "job.json")])
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    before = signal.getsignal(signal.SIGTERM)
    status = run_program("evaluate")
    signal.signal(signal.SIGTERM, before)
    said = capfd.readouterr().err.splitlines()[-1]
    assert (status, said.partition(": ")[0]) == (1, "failed")
    assert gone in said
