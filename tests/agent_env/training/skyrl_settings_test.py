"""SkyRL's own reader, config and events take what the adapter writes for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_env import AgentEnv
from agent_env.client.local import LocalServer
from agent_env.errors import AtCapacity
from agent_env.training.config import ConfigError, parse_config
from agent_env.training.config.skyrl import SkyrlGrpoConfig
from agent_env.training.job import Job
from agent_env.training.skyrl import check, skyrl_rows, write_dataset
from agent_env.training.skyrl.checkpoints import LAST_PARTS
from agent_env.training.skyrl.overrides import overrides
from agent_env.training.skyrl.settings import EnvSettings
from tests.agent_env.conftest import COUNTER
from tests.agent_env.training.ray_checkpoints_test import save
from tests.agent_env.training.skyrl_support import TOKENIZER, generator, rows_of, tokenizer

pytestmark = pytest.mark.skyrl


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer([COUNTER, "inbox"], max_sessions=4) as running:
        yield running


@pytest.fixture
def job(tmp_path: Path) -> Job[SkyrlGrpoConfig]:
    TOKENIZER.save_pretrained(tmp_path / "model")
    return Job(
        config=parse_config(
            SkyrlGrpoConfig,
            {
                "bundle": str(COUNTER),
                "split": "train",
                "eval_split": "eval",
                "model": str(tmp_path / "model"),
                "rollouts_per_step": 8,
                "rollouts_per_task": 4,
                "steps": 5,
                "lora": {"rank": 8},
                "thinking": False,
                "max_unscored": 0.25,
            },
        ),
        out=tmp_path / "out",
        metrics=tmp_path / "metrics.jsonl",
        inputs={},
    )


def test_tasks_of_two_bundles_come_back_from_skyrls_reader_as_they_were(
    server: LocalServer, tmp_path: Path
) -> None:
    from skyrl.train.dataset import PromptDataset  # noqa: PLC0415

    with AgentEnv(server.url) as env:
        inbox = next(split for split in env.splits if split.startswith("inbox"))
        rows = skyrl_rows(env, "counter/train", inbox, tokenizer=TOKENIZER, limit=3, seed=7)
        tasks = [*env.tasks("counter/train")[:3], *env.tasks(inbox)[:3]]
    write_dataset(tmp_path / "train.parquet", rows)
    read = PromptDataset([str(tmp_path / "train.parquet")], TOKENIZER, 9000, num_workers=1)
    assert len(read) == 6
    for number, task in enumerate(tasks):
        prompt, env_class, extras, uid = read[number]
        assert (env_class, uid, prompt[-1]["content"]) == ("agent_env", str(number), task.prompt)
        assert extras["data_source"] == task.split
        known = json.loads(extras["task"])
        assert (known["task_id"], known["index"], known["seed"]) == (task.id, task.index, 7)


def test_the_tools_are_shown_as_the_models_own_template_shows_them(server: LocalServer) -> None:
    with AgentEnv(server.url) as env:
        task, tools = env.tasks("counter/turns")[0], env.tools("counter/turns")
    shown = [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.input_schema,
            },
        }
        for tool in tools
        if tool.name != "end_turn"
    ]
    messages = [
        {"role": "system", "content": task.system_prompt},
        {"role": "user", "content": task.prompt},
    ]
    wanted = TOKENIZER.apply_chat_template(messages, tools=shown, tokenize=False)
    row = rows_of(server.url, "counter/turns")[0]
    assert TOKENIZER.apply_chat_template(row["prompt"], tokenize=False) == wanted
    assert "end_turn" not in wanted


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("{# <tool_call> #}", "can't show tools: add, commit, wait, crash"),
        ("", "no form of calls that is read here"),
        ("{# <tool_call>NAME<arg_key> #}", "no form of calls that is read here"),
    ],
)
def test_a_template_that_shows_no_tools_or_other_calls_is_refused(
    server: LocalServer, start: str, said: str
) -> None:
    plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    with AgentEnv(server.url) as env, pytest.raises(ValueError, match=said):
        skyrl_rows(env, "counter/train", tokenizer=tokenizer(start + plain))


def test_skyrls_own_parser_takes_the_programs_settings(job: Job[SkyrlGrpoConfig]) -> None:
    from agent_env.training.programs.skyrl_grpo import prepare  # noqa: PLC0415
    from agent_env.training.skyrl.experiment import AgentEnvExp, parsed  # noqa: PLC0415

    with AgentEnv.local(COUNTER, max_sessions=8) as env:
        wanted = prepare(job, env, TOKENIZER)
        cfg = parsed(overrides(wanted))
        get_generator: Any = AgentEnvExp.get_generator
        made = get_generator(None, cfg, TOKENIZER, None)
        assert made.max_turns == job.config.tool_rounds + 1
    assert cfg.trainer.train_batch_size * cfg.generator.n_samples_per_prompt == 8
    assert cfg.trainer.epochs * (4 // cfg.trainer.train_batch_size) >= 5
    assert cfg.trainer.policy.model.lora.rank == 8
    assert cfg.generator.chat_template_kwargs == {"enable_thinking": False}
    settings = cfg.generator.agent_env
    assert (settings.url, settings.max_unscored, settings.judged_rollouts) == (env.url, 0.25, 32)
    assert Path(cfg.data.train_data[0]).is_file()
    assert Path(cfg.data.val_data[0]).is_file()


def test_checkpoints_of_other_tools_are_not_gone_on_with(job: Job[SkyrlGrpoConfig]) -> None:
    from agent_env.training.programs.skyrl_grpo import prepare  # noqa: PLC0415

    other = job.model_copy(
        update={"config": job.config.model_copy(update={"split": "turns", "eval_split": "turns"})}
    )
    with AgentEnv.local(COUNTER, max_sessions=8) as env:
        prepare(job, env, TOKENIZER)
        prepare(other, env, TOKENIZER)
        save(job.out / "skyrl" / "checkpoints" / "global_step_3", *LAST_PARTS)
        with pytest.raises(ConfigError, match="training on other tools"):
            prepare(job, env, TOKENIZER)


def test_a_server_for_fewer_rollouts_is_told_by_the_field_and_taken(
    server: LocalServer, job: Job[SkyrlGrpoConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    from agent_env.training.programs.skyrl_grpo import prepare  # noqa: PLC0415

    config = {"bundle": "counter", "env_url": server.url}
    there = job.model_copy(update={"config": job.config.model_copy(update=config)})
    with AgentEnv(server.url) as env:
        prepare(there, env, TOKENIZER)
    assert "config.rollouts_per_step: 8 rollouts take turns on the server's 4 sessions" in (
        capsys.readouterr().out
    )


def preflight(server: LocalServer, **changed: Any) -> list[str]:
    rows = rows_of(server.url, "counter/train")
    asked: dict[str, Any] = {
        "rollouts": 4,
        "prompts": [row["prompt"] for row in rows],
        "tokenizer": TOKENIZER,
        "max_prompt_length": 4000,
        "prompts_per_step": 4,
    }
    return check(EnvSettings(url=server.url), **(asked | changed))


def test_the_preflight_finds_what_cant_work_and_notes_what_is_slow(server: LocalServer) -> None:
    assert preflight(server) == []
    (note,) = preflight(server, rollouts=16)
    assert note.startswith("16 rollouts take turns on the server's 4 sessions")
    with pytest.raises(ConfigError) as caught:
        preflight(server, max_prompt_length=90, prompts_per_step=8, nodes=2)
    long, far, few = caught.value.faults
    assert long.startswith("prompt_tokens: 4 of 4 prompts are longer than 90 tokens with their to")
    assert "another machine on each of 2 nodes" in far
    assert few.startswith("rollouts_per_step: a step takes 8 tasks, the split has 4")


def test_sessions_that_others_hold_are_found_before_a_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agent_env.client._preflight.HELD_S", 0.0)
    with LocalServer(COUNTER, max_sessions=1) as server, AgentEnv(server.url) as other:
        rows = rows_of(server.url, "train")
        session = other.session()
        session.reset(split="train", index=0)
        with pytest.raises(AtCapacity, match="taken by others"):
            check(
                EnvSettings(url=server.url),
                rollouts=1,
                prompts=[row["prompt"] for row in rows],
                tokenizer=TOKENIZER,
                max_prompt_length=4000,
                prompts_per_step=1,
            )


def test_an_environment_by_itself_tells_of_a_loss_and_raises_nothing() -> None:
    from skyrl_gym import make  # noqa: PLC0415

    times = [f"generator.agent_env.{name}_s=0.1" for name in ("patience", "reset_timeout")]
    with LocalServer(COUNTER, max_sessions=2) as server:
        row = rows_of(server.url, "train")[0]
        generator(server.url, lambda _: (), *times)
        server.kill()
        env = make("agent_env", env_config={}, extras={"task": row["task"], "max_turns": 3})
        prompt, _ = env.init(row["prompt"])
        told = env.step("Ten.")
        env.close()
        env.close()
    assert prompt == row["prompt"]
    assert (told["done"], told["reward"], told["observations"]) == (True, 0.0, [])
    assert "can't be reached" in told["metadata"]["unscored"]
    assert env.get_metrics()["unscored"] == 1
