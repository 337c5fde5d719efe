"""Who may speak to a server with a token, and JSON-RPC beside the frames."""

from __future__ import annotations

import json
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from ..conftest import COUNTER, Wire, dial
from .conftest import Player, Process, Start, text

TOKEN = {"Authorization": "Bearer secret-1"}


def status(server: Process, path: str, headers: dict[str, str] | None = None) -> int:
    return httpx.get(server.url + path, headers=headers, trust_env=False).status_code


def rpc(server: Process, method: str, **params: Any) -> dict[str, Any]:
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    reply = httpx.post(server.url + "/mcp", json=request, trust_env=False)
    assert reply.status_code == 200
    answer: dict[str, Any] = reply.json()
    return answer


def test_without_the_token_only_health_answers(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENV_SERVER_TOKEN", "secret-1")
    server = start("--token-env=ENV_SERVER_TOKEN")
    assert status(server, "/health") == 200
    for path in ("/tools", "/capacity", "/metadata", "/list_environments", "/none"):
        assert status(server, path) == 401
        assert status(server, path, {"Authorization": "Bearer secret-2"}) == 401
    assert status(server, "/tools", TOKEN) == 200
    with pytest.raises(InvalidStatus) as refused, dial(server.url):
        pass
    assert refused.value.response.status_code == 401
    address = server.url.replace("http", "ws") + "/ws"
    with connect(address, additional_headers=TOKEN, proxy=None) as socket:
        assert Wire(socket).ask("reset")["type"] == "observation"


def test_a_token_that_is_not_set_is_told(start: Start, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        start("--token-env=NO_SUCH_TOKEN", log=tmp_path / "log")
    assert "NO_SUCH_TOKEN, which isn't set" in (tmp_path / "log").read_text()


def test_a_token_on_the_command_line_is_no_option(start: Start, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        start("--token=secret-1", log=tmp_path / "log")


def test_json_rpc_frames_are_steps_of_the_session(server: Process, name: str) -> None:
    player = Player(server, name)
    player.begin()
    call = {"jsonrpc": "2.0", "id": "a", "method": "tools/call"}
    call["params"] = {"name": "add", "arguments": {"n": 3}, "metadata": {"seq": 1}}  # type: ignore[assignment]
    for _ in range(2):
        reply = player.ask("mcp", **call)
        assert (reply["type"], reply["data"]["id"]) == ("mcp", "a")
        result = reply["data"]["result"]
        assert (result["isError"], result["content"][0]["text"]) == (False, "3")
        assert result["_meta"]["metadata"]["session"]["seq"] == 1
    assert text(player.step(2, "add", n=1)) == "4"


@pytest.mark.parametrize(
    "request_, code",
    [
        ({}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "initialize"}, -32601),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 3}}, -32602),
    ],
)
def test_a_wrong_request_is_answered_with_its_code(
    server: Process, name: str, request_: dict[str, Any], code: int
) -> None:
    player = Player(server, name)
    player.begin()
    assert player.ask("mcp", **request_)["data"]["error"]["code"] == code
    reply = httpx.post(server.url + "/mcp", json=request_, trust_env=False)
    assert reply.json()["error"]["code"] == code


def test_json_rpc_over_http_opens_and_closes_sessions(server: Process) -> None:
    broken = httpx.post(server.url + "/mcp", content=b"{", trust_env=False)
    assert broken.json()["error"]["code"] == -32700
    names = [tool["name"] for tool in rpc(server, "tools/list")["result"]["tools"]]
    assert names[-1] == "end_turn"
    wrong = rpc(server, "openenv/session/create", spllit="eval")
    assert (wrong["error"]["code"], server.capacity()["active_sessions"]) == (-32602, 0)
    made = rpc(server, "openenv/session/create", split="eval", index=0)["result"]["session_id"]
    called = rpc(server, "tools/call", session_id=made, name="add", arguments={"n": 10})
    assert called["result"]["content"][0]["text"] == "10"
    ended = rpc(server, "tools/call", session_id=made, name="commit")["result"]["_meta"]
    assert (ended["done"], ended["reward"]) == (True, 1.0)
    assert rpc(server, "openenv/session/close", session_id=made)["result"]["closed"] is True
    assert rpc(server, "tools/call", session_id=made, name="add")["error"]["code"] == -32602
    assert server.capacity()["active_sessions"] == 0


def test_json_rpc_over_a_socket_of_its_own_plays_the_first_task(server: Process) -> None:
    address = server.url.replace("http", "ws") + "/mcp"
    with connect(address, proxy=None) as socket:
        call = {"name": "add", "arguments": {"n": 3}}
        request = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call}
        socket.send(json.dumps(request))
        reply = json.loads(socket.recv(10))
    assert (reply["id"], reply["result"]["content"][0]["text"]) == (7, "3")


def test_the_routes_are_listed(server: Process) -> None:
    document = server.get("/openapi.json")
    assert document["info"]["version"]
    assert {"/health", "/tools", "/mcp", "/{env}/task"} <= set(document["paths"])
    assert COUNTER.name == server.get("/tools")["env_name"]


def test_requests_of_one_session_take_turns(server: Process) -> None:
    made = rpc(server, "openenv/session/create", split="eval", index=0)["result"]["session_id"]

    def waited(_: int) -> str:
        wait = {"name": "wait", "arguments": {"seconds": 0.2}}
        reply = rpc(server, "tools/call", session_id=made, **wait)
        return str(reply["result"]["_meta"]["metadata"]["session"]["seq"])

    began = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(waited, range(4))) == ["1", "2", "3", "4"]
    assert time.monotonic() - began >= 4 * 0.2
    rpc(server, "openenv/session/close", session_id=made)


def test_a_socket_of_json_rpc_may_name_its_session(start: Start, tmp_path: Path) -> None:
    server = start(f"--journal={tmp_path}")
    address = server.url.replace("http", "ws") + "/mcp?session_id=session-1&open=1"
    add = {"name": "add", "arguments": {"n": 3}}
    asked = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": add})
    for total in ("3", "6"):
        with connect(address, proxy=None) as socket:
            socket.send(asked)
            assert json.loads(socket.recv(10))["result"]["data"] == total
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
    with connect(address.replace("session-1", "session-2"), proxy=None) as socket:
        assert json.loads(socket.recv(10))["data"]["reason"] == "JOURNAL_FULL"
