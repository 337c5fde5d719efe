"""What is public, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import agent_env

ROOT = Path(__file__).parents[2]


def loaded_by(statement: str) -> set[str]:
    program = f"{statement}; import sys; print(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("name", agent_env.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(agent_env, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = agent_env.nothing


def test_a_client_imports_neither_a_server_nor_a_trainer() -> None:
    heavy = {"starlette", "uvicorn", "torch", "trl", "transformers", "datasets", "openenv"}
    heavy |= {"httpx", "click", "rich", "numpy"}
    assert not loaded_by("from agent_env import AgentEnv") & heavy
    assert not loaded_by("import agent_env.training.trl") & heavy
    assert not loaded_by("from agent_env import Task, tool, Bundle") & (heavy | {"websockets"})
