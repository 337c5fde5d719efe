"""TRL itself reads what a factory builds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_env import AgentEnv

pytestmark = pytest.mark.trl

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
