"""A stock OpenEnv server as a process, to be killed and started again on its port."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.agent_env.conftest import eventually

STOCK = Path(__file__).with_name("stock.py")
BOOT_S = 40.0
"""OpenEnv's imports alone take seconds, more on a busy machine."""


class StockServer:
    """`start` again after `kill` gives a fresh process at the same address."""

    def __init__(self, *options: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [sys.executable, str(STOCK), "--port", str(self.port), *options]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command)
        eventually(self._healthy, BOOT_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _healthy(self) -> bool:
        assert self._process.poll() is None, "the stock server ended at its start"
        with suppress(OSError), urllib.request.urlopen(f"{self.url}/health", timeout=5) as reply:
            return bool(reply.status == 200)
        return False


@pytest.fixture
def start_stock() -> Iterator[Callable[..., StockServer]]:
    """Starts stock servers, which end with the test."""
    started: list[StockServer] = []

    def start(*options: str) -> StockServer:
        started.append(StockServer(*options))
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.fixture(scope="module")
def stock() -> Iterator[StockServer]:
    """One with the Task API and room for a batch, for the tests that only read and play."""
    one = StockServer()
    yield one
    one.kill()
