"""A small bundle, a real server for it, and a hand on its websocket."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from agent_env.client.local import LocalServer

COUNTER = Path(__file__).parent / "counter"

# The environments of the training and interop tests don't have it.
with suppress(ModuleNotFoundError):
    import_module("hypothesis").settings.register_profile("chaos", max_examples=10_000)


class Wire:
    """Frames written by hand, as any OpenEnv client sends them."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    def send(self, kind: str, **data: Any) -> None:
        self.socket.send(json.dumps({"type": kind, "data": data}))

    def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.socket.recv(20))
        return message

    def ask(self, kind: str, **data: Any) -> dict[str, Any]:
        self.send(kind, **data)
        return self.receive()

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        reply = self.ask("step", type="call_tool", tool_name=tool, arguments=arguments)
        data: dict[str, Any] = reply["data"]
        return data


def dial(url: str, query: str = "") -> ClientConnection:
    return connect(url.replace("http", "ws") + "/ws" + query, proxy=None)


def eventually(holds: Callable[[], bool], within_s: float = 30.0) -> None:
    """Look again until it holds; fails after the deadline."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(COUNTER, max_sessions=4) as running:
        yield running


@pytest.fixture
def wire(server: LocalServer) -> Iterator[Wire]:
    with dial(server.url) as socket:
        yield Wire(socket)
