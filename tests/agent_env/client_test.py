"""A client by hand: what it can ask for, and what it makes of a server that isn't ours."""

from __future__ import annotations

import asyncio
import json
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socket import SHUT_WR, SO_LINGER, SOL_SOCKET, create_connection, socket
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.sync.server import Server, ServerConnection, serve

from agent_env import AgentEnv
from agent_env.bundle import load_bundle
from agent_env.client.local import LocalServer
from agent_env.errors import (
    InvalidAction,
    NotInstalled,
    ProtocolError,
    SessionLost,
    TaskNotFound,
)
from agent_env.types import MAX_FRAME_BYTES

from .conftest import COUNTER


@contextmanager
def running(server: Server | HTTPServer) -> Iterator[None]:
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join(10)


@contextmanager
def a_server_that_replies(frame: object) -> Iterator[str]:
    def answer(socket: ServerConnection) -> None:
        for _ in socket:
            socket.send(json.dumps(frame))

    with serve(answer, "127.0.0.1", 0) as server, running(server):
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"


class _Page(BaseHTTPRequestHandler):
    """Somebody else's web server, at what was taken for an env server's address."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(b"<html>hello</html>")

    def log_message(self, *_: Any) -> None:
        """Nothing on the test's output."""


@contextmanager
def a_web_page(status: int) -> Iterator[str]:
    handler = type("Page", (_Page,), {"status": status})
    with HTTPServer(("127.0.0.1", 0), handler) as server, running(server):
        yield f"http://127.0.0.1:{server.server_port}"


def test_the_tools_of_an_open_episode_are_those_of_its_split(server: LocalServer) -> None:
    with AgentEnv(server.url) as env:
        session = env.session()
        session.reset(split="eval", index=0)
        told = [tool["name"] for tool in session.list_tools()]
        assert told == [tool.name for tool in env.tools("eval")]


def test_a_client_can_tell_whether_it_has_the_same_tasks(server: LocalServer) -> None:
    bundle = load_bundle(COUNTER)
    with AgentEnv(server.url) as env:
        assert env.content_hashes == {bundle.name: bundle.content_hash}


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "observation", "data": {"done": "perhaps", "reward": None}},
        {"type": "observation", "data": {"done": True, "reward": "high"}},
        {"type": "observation", "data": []},
        {"type": "state", "data": {}},
        {"type": "error", "data": {"message": "no code"}},
        [],
    ],
)
def test_a_reply_that_makes_no_sense_is_an_error_of_ours(frame: object) -> None:
    unreadable = pytest.raises(ProtocolError, match="unreadable reply")
    with a_server_that_replies(frame) as url, AgentEnv(url) as env, unreadable:
        env.session().reset()


@pytest.mark.parametrize("status", [200, 400, 404])
def test_a_web_page_is_not_taken_for_an_env_server(status: int) -> None:
    with a_web_page(status) as url, AgentEnv(url) as env, pytest.raises(ProtocolError):
        env.tasks("train")


@pytest.mark.parametrize(
    "url",
    [
        None,
        8000,
        "",
        "127.0.0.1:8000",
        "http://",
        "http://127.0.0.1:93636",
        "http://a:0",
        "http://a:-1",
        "http://a:x",
        "http://[::1",
        "ftp://a",
    ],
)
def test_what_is_no_address_is_refused(url: Any) -> None:
    with pytest.raises(ValueError, match="is like http://host:8000"):
        AgentEnv(url)


@pytest.mark.parametrize("url", ["http://a", "ws://a:65535/ws", "https://[::1]:1/"])
def test_what_is_an_address_is_taken(url: str) -> None:
    assert AgentEnv(url).url.startswith("http")


def test_a_split_that_is_mistyped_is_told_with_the_nearest(server: LocalServer) -> None:
    near = "no split 'evla'; did you mean 'eval'[?] there are: train, eval, turns"
    with AgentEnv(server.url) as env, pytest.raises(TaskNotFound, match=near):
        env.tools("evla")


def test_a_factory_without_a_split_says_which_there_are(server: LocalServer) -> None:
    with AgentEnv(server.url) as env, pytest.raises(TaskNotFound, match="there are: train"):
        env.factory_for()


def test_a_call_that_no_server_would_take_is_not_sent(server: LocalServer) -> None:
    with AgentEnv(server.url) as env:
        session = env.session()
        session.reset(split="eval", index=0)
        session.call_tool("add", {"n": 1, "note": "x" * (MAX_FRAME_BYTES - 1000)})
        for large in (MAX_FRAME_BYTES, 3 * MAX_FRAME_BYTES):
            with pytest.raises(InvalidAction, match="a server takes 16,777,216 at most"):
                session.call_tool("add", {"n": 1, "note": "x" * large})
        with pytest.raises(InvalidAction, match="nothing was sent"):
            env.session().reset(split="x" * MAX_FRAME_BYTES, index=0)
        seen = session.call_tool("add", {"n": 1})
        assert (seen.model_dump()["result"]["data"], session.continued) == ("2", 0)


def test_a_closed_client_says_that_it_was_closed(server: LocalServer) -> None:
    with AgentEnv(server.url) as env:
        old, unused = env.session(), env.session()
        old.reset(split="eval", index=0)
    calls: list[Callable[[], object]] = [
        lambda: old.call_tool("add", {"n": 1}),
        old.state,
        old.reset,
        unused.reset,
        lambda: env.session().reset(),
        lambda: asyncio.run(env.async_session().reset()),
    ]
    for call in calls:
        with pytest.raises(SessionLost, match="this client was closed"):
            call()
    old.close()
    env.close()


def test_a_dataset_without_the_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(NotInstalled) as refused:
        AgentEnv("http://127.0.0.1:1").dataset("train")
    said = (
        "a dataset needs the package datasets: make train-setup, or pip install '.[train]' in this"
        " package's repository"
    )
    assert str(refused.value) == said


def test_a_broken_dataset_package_is_not_called_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "datasets.py").write_text("import its_own_missing_part")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "datasets", raising=False)
    with pytest.raises(ModuleNotFoundError, match="its_own_missing_part"):
        AgentEnv("http://127.0.0.1:1").dataset("train")


@contextmanager
def breaking_off(url: str, times: int) -> Iterator[str]:
    """Before a server: the first connections are taken, heard, and broken."""
    target = (urlsplit(url).hostname, urlsplit(url).port)
    left = [times]

    class Hop(BaseRequestHandler):
        def handle(self) -> None:
            head = self.request.recv(8192)
            if b"GET /ws" in head and left[0]:
                left[0] -= 1
                self.request.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", left[0] % 2, 0))
                return
            with create_connection(target) as beyond:
                beyond.sendall(head)
                back = Thread(target=_pump, args=(beyond, self.request), daemon=True)
                back.start()
                _pump(self.request, beyond)

    class Hops(ThreadingTCPServer):
        daemon_threads = True

    with Hops(("127.0.0.1", 0), Hop) as hops:
        Thread(target=hops.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{hops.server_address[1]}"
        hops.shutdown()


def _pump(one: socket, other: socket) -> None:
    with suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(SHUT_WR)


@pytest.mark.parametrize("kind", ["session", "async_session"])
def test_a_connection_that_breaks_in_its_handshake_is_tried_again(
    server: LocalServer, kind: str
) -> None:
    """As one does that goes to a worker that is just being killed."""
    with breaking_off(server.url, times=4) as url, AgentEnv(url, budget=20.0) as env:
        assert env.splits
        session = getattr(env, kind)()
        if kind == "session":
            assert session.reset(split="eval", index=0).metadata["task"]["index"] == 0
            session.close()
            return

        async def play() -> None:
            assert (await session.reset(split="eval", index=0)).metadata["task"]["index"] == 0
            await session.close()

        asyncio.run(play())
