"""A model of this process plays, and what was played teaches one: with transformers and TRL."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import datasets
import pytest
from trl import SFTConfig, SFTTrainer

from agent_env import AgentEnv
from agent_env.errors import PolicyError
from agent_env.evaluation.demonstrations import demonstrate
from agent_env.evaluation.policies.local_model import LocalModel
from agent_env.evaluation.results import Header, Row
from agent_env.evaluation.run import missing, play_all
from agent_env.evaluation.sft import as_lines, examples
from agent_env.training.models import save_model, settle_torch
from agent_env.training.randomness import seed_everything
from agent_env.training.tiny import build_model, build_tokenizer
from agent_env.training.warmstart import to_example, warm_start

pytestmark = pytest.mark.trl

SPLIT = "coarse-eval"


@pytest.fixture(autouse=True)
def one_thread() -> None:
    # Two threads that spin for each other on a busy machine take minutes for what is seconds.
    settle_torch()


@pytest.fixture(scope="module")
def shown() -> tuple[Header, list[Row]]:
    """The expert at every coarse day."""
    return demonstrate("gridsim", SPLIT)


@pytest.fixture(scope="module")
def folder(shown: tuple[Header, list[Row]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that has seen the expert."""
    settle_torch()
    header, rows = shown
    talks = [row.messages for row in rows]
    tokenizer = build_tokenizer(talks, header.tools)
    seed_everything(0)
    model = build_model(tokenizer)
    seen = [to_example(tokenizer, header.tools, talk, decision_weight=1.0) for talk in talks[:8]]
    for _ in warm_start(
        model,
        seen,
        pad=tokenizer.pad_token_id,
        steps=60,
        batch_rows=8,
        learning_rate=3e-3,
        rng=random.Random(0),
    ):
        pass
    path = tmp_path_factory.mktemp("model") / "tiny"
    save_model(model, tokenizer, path)
    return path


def test_a_model_plays(folder: Path) -> None:
    policy = LocalModel(str(folder), sampling={"max_new_tokens": 48})
    with AgentEnv.local("gridsim", max_sessions=2) as env:
        tools, todo = tuple(env.tools(SPLIT)), missing(env.tasks(SPLIT)[:3], 1, 0, ())
        first, again = (
            list(play_all(todo, env.session, policy, tools=tools, max_calls=4, concurrency=n))
            for n in (1, 2)
        )
    assert {row.status for row in first} == {"scored"}
    assert all(row.scores["committed"] == 1.0 for row in first)
    assert first[0].messages[1]["tool_calls"][0]["function"] == {
        "name": "read_day",
        "arguments": {},
    }
    assert [row.messages for row in first] == [
        row.messages for row in sorted(again, key=lambda row: row.index)
    ]


def test_a_model_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="no model at"):
        LocalModel(str(tmp_path), sampling={})


def test_exported_rollouts_are_data_that_trl_takes(
    shown: tuple[Header, list[Row]], folder: Path, tmp_path: Path
) -> None:
    found = examples(*shown, 0.99)
    (tmp_path / "sft.jsonl").write_text(as_lines(found))
    loaded: Any = datasets.load_dataset(
        "json", data_files=str(tmp_path / "sft.jsonl"), split="train", cache_dir=str(tmp_path)
    )
    assert loaded.column_names == ["messages", "tools"]
    tokenizer = LocalModel(str(folder), sampling={})._tokenizer
    for row, example in zip(loaded, found, strict=True):
        text = tokenizer.apply_chat_template(row["messages"], tools=row["tools"], tokenize=False)
        assert text == tokenizer.apply_chat_template(
            example["messages"], tools=example["tools"], tokenize=False
        )
        assert '{"name": "read_day", "arguments": {}}' in text
    trained = SFTTrainer(
        model=str(folder),
        train_dataset=loaded,
        args=SFTConfig(
            output_dir=str(tmp_path / "out"),
            max_steps=2,
            per_device_train_batch_size=2,
            report_to="none",
            use_cpu=True,
            bf16=False,
            save_strategy="no",
            disable_tqdm=True,
        ),
    ).train()
    assert trained.training_loss < 5
