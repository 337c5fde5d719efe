"""What tests of training share; importing SkyRL is left to the tests that do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from agent_env.client.local import LocalServer
from tests.agent_env.conftest import COUNTER

# Before the hub's client is imported, which reads it once: nothing here may ask the real one.
os.environ.setdefault("HF_ENDPOINT", "http://127.0.0.1:9")


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(COUNTER, max_sessions=4) as running:
        yield running


@pytest.fixture
def row(server: LocalServer) -> dict[str, Any]:
    """The first task of the server's, as SkyRL's dataset has it."""
    from tests.agent_env.training.skyrl_support import rows_of  # noqa: PLC0415

    return rows_of(server.url, "train")[0]
