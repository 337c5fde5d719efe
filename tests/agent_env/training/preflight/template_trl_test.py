"""A model that can't call tools is told of by its tokenizer; its weights aren't touched."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from trl import chat_template_utils

from agent_env import AgentEnv
from agent_env.errors import AtCapacity
from agent_env.training import preflight, tiny, trained_on
from agent_env.training.config import ConfigError
from agent_env.training.preflight.template import FAMILIES, load_tokenizer, template_faults
from tests.agent_env.training.preflight.source_test import model

pytestmark = pytest.mark.trl

COUNTER = Path(__file__).parents[2] / "counter"
TALK = [{"role": "user", "content": "Count to ten."}, {"role": "assistant", "content": "done"}]

Tokenizer = Callable[..., Any]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    made = tiny.build_tokenizer([TALK], [])
    parser = made.response_template

    def with_template(template: str | None, *, parsed: bool = False) -> Any:
        made.chat_template = template
        made.response_template = parser if parsed else None
        return made

    return with_template


@pytest.fixture(scope="module")
def env() -> Iterator[AgentEnv]:
    with AgentEnv.local(COUNTER, max_sessions=4) as client:
        yield client


def known(name: str) -> str:
    text: str = getattr(chat_template_utils, f"{name}_chat_template")
    return text


def unloadable(folder: Path, tokenizer: Any) -> str:
    """A model whose tokenizer can be read and whose weights nothing could be made of."""
    (model(folder) / "config.json").write_text(json.dumps({"model_type": "never-loaded"}))
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("name", [name for names in FAMILIES.values() for name in names])
def test_the_families_that_are_recommended_call_tools(tokenizer: Tokenizer, name: str) -> None:
    assert list(template_faults(tokenizer(known(name)), "model")) == []


def test_the_tiny_model_calls_tools(tokenizer: Tokenizer) -> None:
    assert list(template_faults(tokenizer(tiny.TEMPLATE, parsed=True), "model")) == []


@pytest.mark.parametrize(
    ("template", "parsed", "said"),
    [
        (None, False, "the tokenizer has no chat template, as of a base model; take an instruct"),
        (known("llama3"), False, "its chat template can't show tool calls and their results; ta"),
        (known("phi3"), True, "its chat template can't show tool calls and their results; take"),
        (known("qwen3") + " ", False, "nothing reads its tool calls: the tokenizer has no respo"),
        (known("qwen3") + " ", True, "its chat template renders earlier messages differently"),
    ],
    ids=["none", "llama3", "phi3", "edited", "edited-with-parser"],
)
def test_what_keeps_a_model_from_calling_tools_is_told_with_what_to_take(
    tokenizer: Tokenizer, template: str | None, parsed: bool, said: str
) -> None:
    (fault,) = template_faults(tokenizer(template, parsed=parsed), "config.model")
    assert fault.startswith(f"config.model: {said}")
    assert "take an instruct model of a family that does: Qwen2.5, Qwen3," in fault


def test_without_a_tokenizer_the_folder_is_named(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    with pytest.raises(ConfigError, match=r"model: .*/m has no tokenizer; copy the tokenizer"):
        load_tokenizer(str(folder), "model")
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(ConfigError, match=r"model: no tokenizer can be loaded from '.*/m'"):
        load_tokenizer(str(folder), "model")


def test_a_script_is_told_before_its_model_is_loaded(
    tmp_path: Path, tokenizer: Tokenizer, env: AgentEnv
) -> None:
    source = unloadable(tmp_path / "m", tokenizer(known("llama3")))
    rows, out = env.dataset("train"), tmp_path / "out"
    factory = env.factory

    def check(**changed: Any) -> None:
        usual = {"environment_factory": factory, "train_dataset": rows, "sessions": 4}
        preflight.check(source, env=env, out=out, **usual | changed)

    with pytest.raises(ConfigError, match="model: its chat template can't show tool calls"):
        check()
    with pytest.raises(AtCapacity, match="start it with --max-sessions 8"):
        check(sessions=8)
    with pytest.raises(AtCapacity, match="start it with --max-sessions 8"):
        check(environment_factory={"a": factory, "b": factory}, train_dataset=None)
    with pytest.raises(ConfigError, match="eval_dataset: row 0 is of the split 'turns'"):
        check(eval_dataset=[{"split": "turns"}])
    assert not out.exists()
    tokenizer(known("qwen3")).save_pretrained(source)
    check()
    assert trained_on.read(out) == trained_on.now_served(env, ["train"])
