"""A server as a process of its own, to be killed, stopped and started again on its port."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from ..conftest import COUNTER, Wire, dial

Start = Callable[..., "Process"]


class Process:
    """`python -m agent_env.server`, listening."""

    def __init__(
        self, bundle: Path, *options: str, port: int = 0, log: Path | None = None
    ) -> None:
        ready, announce = os.pipe()
        command = [sys.executable, "-m", "agent_env.server", str(bundle), f"--port={port}"]
        with (log or Path(os.devnull)).open("ab") as stderr:
            self._process = subprocess.Popen(
                [*command, f"--ready-fd={announce}", *options],
                pass_fds=[announce],
                stderr=stderr if log else None,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        os.close(announce)
        with os.fdopen(ready) as pipe:
            line = pipe.readline()
        told = json.loads(line) if line else {}
        if "port" not in told:
            self._process.wait(10)
        assert "port" in told, "the server ended at its start"
        self.port = int(told["port"])
        self.url = f"http://127.0.0.1:{self.port}"
        self.pid = self._process.pid
        self.sockets = ExitStack()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, within_s: float = 10.0) -> int:
        return self._process.wait(within_s)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def get(self, path: str) -> Any:
        return httpx.get(self.url + path, trust_env=False, timeout=5).json()

    def capacity(self) -> dict[str, int]:
        found: dict[str, int] = self.get("/capacity")
        return found

    def end(self) -> None:
        self.sockets.close()
        if self.running:
            self._process.send_signal(signal.SIGCONT)
            self.kill()


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts servers; ends them with the test."""
    started: list[Process] = []

    def started_now(*options: str, bundle: Path = COUNTER, **more: Any) -> Process:
        started.append(Process(bundle, *options, **more))
        return started[-1]

    yield started_now
    for process in started:
        process.end()


@pytest.fixture(scope="module")
def server() -> Iterator[Process]:
    """One server for the tests that leave it as they found it."""
    process = Process(COUNTER, "--max-sessions=32")
    yield process
    process.end()


@pytest.fixture
def name(server: Process) -> Iterator[str]:
    """A session of one's own, over when the test is."""
    yield f"session-{next(_NUMBERS)}"
    server.sockets.close()


_NUMBERS = count(1)


class Player(Wire):
    """A client that numbers its steps and comes back for its session."""

    def __init__(self, server: Process, name: str, query: str = "&open=1") -> None:
        self.name = name
        socket = dial(server.url, f"?session_id={name}{query}")
        super().__init__(server.sockets.enter_context(socket))
        server.sockets.callback(self._say_goodbye)

    def begin(self, split: str = "eval", index: int = 0, **more: Any) -> dict[str, Any]:
        asked = {"split": split, "index": index, "episode_id": self.name, **more}
        return self.ask("reset", **asked)

    def step(self, seq: int, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.ask("step", **action(tool, arguments, seq=seq))

    def _say_goodbye(self) -> None:
        with suppress(ConnectionClosed):
            self.send("close")

    def cut(self) -> None:
        """Break the socket as a lost network would."""
        cut(self.socket)


def action(tool: str, arguments: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """The data of a `call_tool` step."""
    called = {"type": "call_tool", "tool_name": tool, "arguments": arguments}
    return {**called, "metadata": metadata}


def cut(socket: ClientConnection) -> None:
    with suppress(OSError):
        socket.socket.shutdown(2)
    socket.close()


def text(reply: dict[str, Any]) -> str:
    """What the tool said."""
    assert reply["type"] == "observation", reply
    said: str = reply["data"]["observation"]["result"]["data"]
    return said


def reason(reply: dict[str, Any]) -> str:
    """Why a frame was refused."""
    assert reply["type"] == "error", reply
    why: str = reply["data"].get("reason") or reply["data"]["code"]
    return why


def session(reply: dict[str, Any]) -> dict[str, Any]:
    """`metadata.session` of an observation."""
    found: dict[str, Any] = reply["data"]["metadata"]["session"]
    return found
