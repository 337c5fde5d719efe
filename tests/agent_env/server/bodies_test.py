"""What a request may send is bounded as a socket's frames are, with workers and without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent_env.types import MAX_FRAME_BYTES

from ..conftest import COUNTER
from .conftest import Process

CALL = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'
SPLIT = b'{"split": "eval"}'
PIECE = b" " * 2**20


@pytest.fixture(scope="module", params=[(), ("--workers=1",)], ids=["alone", "workers"])
def process(request: pytest.FixtureRequest) -> Iterator[Process]:
    found = Process(COUNTER, *request.param)
    yield found
    found.end()


def post(process: Process, path: str, body: Any) -> httpx.Response:
    return httpx.post(process.url + path, content=body, trust_env=False, timeout=30)


def pieces(last: bytes, mib: int) -> Iterator[bytes]:
    """Chunks, whose length nobody is told before."""
    for _ in range(mib):
        yield PIECE
    yield last


@pytest.mark.parametrize("path, words", [("/mcp", CALL), ("/counter/tasks", SPLIT)])
def test_a_body_that_is_too_long_is_refused_and_one_at_the_limit_is_not(
    process: Process, path: str, words: bytes
) -> None:
    longest = words.rjust(MAX_FRAME_BYTES)
    assert post(process, path, longest).status_code == 200
    for body in (longest + b" ", pieces(words, 16), pieces(words, 40)):
        refused = post(process, path, body)
        assert refused.status_code == 413
        detail = "the request's body is too long: 16,777,216 bytes at most"
        assert refused.json() == {"detail": detail}


def test_what_is_too_long_is_not_kept(process: Process) -> None:
    status = Path(f"/proc/{process.pid}/status")
    before = _peak_mib(status)
    post(process, "/counter/tasks", PIECE * 60)
    assert _peak_mib(status) - before < 50


def _peak_mib(status: Path) -> int:
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024
