"""TRL itself reads what a factory builds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_env import AgentEnv
from tests.agent_env.page import SERVER, snippets

pytestmark = pytest.mark.trl

ROOT = Path(__file__).parents[3]
COUNTER = Path(__file__).parents[1] / "counter"


@pytest.fixture(scope="module")
def env() -> Iterator[AgentEnv]:
    with AgentEnv.local(COUNTER, max_sessions=16) as client:
        yield client


def test_the_schema_that_trl_shows_is_the_tools_own(env: AgentEnv) -> None:
    from transformers.utils import get_json_schema  # noqa: PLC0415

    one = env.factory_for("turns")()
    for spec in env.tools("turns"):
        shown = get_json_schema(getattr(one, spec.name))["function"]
        assert shown["name"] == spec.name
        assert shown["description"] == spec.description
        own: dict[str, Any] = spec.input_schema["properties"]
        properties = shown["parameters"]["properties"]
        assert list(properties) == list(own)
        for name, schema in own.items():
            assert properties[name]["description"] == schema["description"]
            if "type" in schema:
                assert properties[name]["type"] == schema["type"]
        assert shown["parameters"].get("required", []) == spec.input_schema.get("required", [])


def test_a_dataset_has_the_columns_that_reset_needs(env: AgentEnv) -> None:
    dataset = env.dataset("eval")
    assert dataset.column_names == ["prompt", "task_id", "split", "index"]
    one = env.factory_for("eval")()
    assert one.reset(**dataset[1]) is None
    assert one.add(n=20) == "20"
    assert one.get_reward() == 1.0


@pytest.fixture
def tiny_model(tmp_path: Path) -> Path:
    """A model that has learned nothing, saved where a trainer can load it."""
    from agent_env.training import models, tiny  # noqa: PLC0415
    from agent_env.training.demonstrations import tools_of  # noqa: PLC0415

    with AgentEnv.local("gridsim") as env:
        rows = env.rows("coarse-train")[:8]
        tokenizer = tiny.build_tokenizer([row["prompt"] for row in rows], tools_of(env.factory()))
    models.save_model(tiny.build_model(tokenizer), tokenizer, tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.slow
def test_the_dataset_and_the_factory_go_to_the_trainer_as_they_are(
    tmp_path: Path, tiny_model: Path
) -> None:
    (snippet,) = snippets(training=True)
    with AgentEnv.local("gridsim") as env:
        smaller = {
            SERVER: env.url,
            "Qwen/Qwen3-0.6B": str(tiny_model),
            "max_steps=100": "max_steps=1, use_cpu=True, bf16=False",
            "max_completion_length=256": "max_completion_length=16",
        }
        for shown, here in smaller.items():
            assert snippet.count(shown) == 1
            snippet = snippet.replace(shown, here)
        done = subprocess.run(
            [sys.executable, "-c", snippet],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "env/tool_calls" in done.stdout
    assert (tmp_path / "out" / "checkpoint-1").is_dir()
