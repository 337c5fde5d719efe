"""OpenEnv's own client against our server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from openenv.core.env_server.mcp_types import CallToolAction
from openenv.core.generic_client import GenericEnvClient
from openenv.core.mcp_client import MCPToolClient

from agent_env.client.local import LocalServer
from tests.agent_env.conftest import COUNTER

pytestmark = pytest.mark.openenv

LIST = {"type": "list_tools"}


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "call_tool", "tool_name": tool, "arguments": arguments}


def test_a_synchronous_client_plays_an_episode(server: LocalServer) -> None:
    with GenericEnvClient(base_url=server.url).sync() as client:
        opened = client.reset(split="train", index=0, seed=7, episode_id="stock-sync-1")
        assert opened.observation["metadata"]["prompt"] == "Count to 10. Seed 7."
        assert (opened.reward, opened.done) == (None, False)
        added = client.step(call("add", n=5, note="five"))
        assert added.observation["result"]["data"] == "5 five"
        assert (added.observation["error"], added.done) == (None, False)
        state = client.state()
        assert (state["episode_id"], state["step_count"]) == ("stock-sync-1", 1)
        ended = client.step(call("commit"))
        assert (ended.reward, ended.done) == (0.5, True)
        assert ended.metadata["scores"] == {"near": 0.5}


def test_an_asynchronous_client_plays_one_episode_after_another(server: LocalServer) -> None:
    async def play() -> list[float | None]:
        async with GenericEnvClient(base_url=server.url) as client:
            rewards = []
            for n in (5, 10):
                await client.reset(split="train", index=0)
                await client.step(call("add", n=n))
                rewards.append((await client.step(call("end_turn", response="done"))).reward)
            return rewards

    assert asyncio.run(play()) == [0.5, 1.0]


def test_tools_are_listed_as_openenv_lists_them(server: LocalServer) -> None:
    with GenericEnvClient(base_url=server.url).sync() as client:
        client.reset(split="train", index=0)
        tools = {tool["name"]: tool for tool in client.step(LIST).observation["tools"]}
    assert list(tools)[-1] == "end_turn"
    assert tools["add"]["description"] == "Add a number to the counter."
    assert tools["add"]["input_schema"]["properties"]["n"]["type"] == "integer"
    assert tools["add"]["input_schema"]["required"] == ["n"]


def test_what_is_wrong_with_a_call_has_openenvs_words(server: LocalServer) -> None:
    with GenericEnvClient(base_url=server.url).sync() as client:
        client.reset(split="train", index=0)
        unknown = client.step(call("ad", n=1)).observation["error"]
        unfit = client.step(call("add", n="many")).observation["error"]
        refused = client.step(call("add", n=2000)).observation["error"]
    assert [error["error_type"] for error in (unknown, unfit, refused)] == [
        "tool_not_found",
        "invalid_args",
        "execution_error",
    ]


def test_a_full_server_refuses_with_the_code_that_stock_clients_match() -> None:
    with (
        LocalServer(COUNTER, max_sessions=1) as server,
        GenericEnvClient(base_url=server.url).sync() as holder,
        GenericEnvClient(base_url=server.url).sync() as late,
    ):
        holder.reset()
        with pytest.raises(RuntimeError, match=r"\(code: CAPACITY_REACHED\)"):
            late.reset()


def test_a_closed_client_gives_its_slot_back() -> None:
    with LocalServer(COUNTER, max_sessions=1) as server:
        for _ in range(3):
            with GenericEnvClient(base_url=server.url).sync() as client:
                assert client.reset().done is False


def test_a_misspelled_reset_argument_is_refused_by_name(server: LocalServer) -> None:
    with (
        GenericEnvClient(base_url=server.url).sync() as client,
        pytest.raises(RuntimeError, match=r"unknown argument 'spllit'.*\(code: VALIDATION_ERROR"),
    ):
        client.reset(spllit="train", index=0)


def test_a_step_before_the_first_reset_never_gives_a_reward(server: LocalServer) -> None:
    with (
        GenericEnvClient(base_url=server.url).sync() as client,
        pytest.raises(RuntimeError, match=r"never reset.*\(code: EXECUTION_ERROR\)"),
    ):
        client.step(call("add", n=1))


def test_after_a_restart_a_stock_client_is_told_and_gets_no_reward() -> None:
    """Its own server would answer with a reward from an environment that was never reset."""
    server = LocalServer(COUNTER)
    clients = [GenericEnvClient(base_url=server.url).sync() for _ in range(4)]
    for client in clients:
        client.connect()
        client.reset(split="train", index=0)
        client.step(call("add", n=5))
    server.kill()
    with LocalServer(COUNTER, port=server.port):
        for client in clients:
            with pytest.raises(Exception, match=r"never reset|no close frame|received"):
                client.step(call("commit"))
            client.reset(split="train", index=0)
            client.step(call("add", n=10))
            assert client.step(call("commit")).reward == 1.0
            client.close()


def test_json_rpc_over_the_socket_lists_and_calls_tools(server: LocalServer) -> None:
    async def ask() -> list[dict[str, Any]]:
        async with GenericEnvClient(base_url=server.url) as client:
            await client.reset(split="train", index=0)
            frames = [
                {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}},
                {
                    "jsonrpc": "2.0",
                    "id": 2,
                    "method": "tools/call",
                    "params": {"name": "add", "arguments": {"n": 3}},
                },
            ]
            return [
                await client._send_and_receive({"type": "mcp", "data": frame}) for frame in frames
            ]

    listed, called = asyncio.run(ask())
    assert listed["type"] == called["type"] == "mcp"
    assert "add" in [tool["name"] for tool in listed["data"]["result"]["tools"]]
    assert called["data"]["id"] == 2
    assert "3" in str(called["data"]["result"])


def test_the_tool_client_uses_one_session_over_socket_and_http(server: LocalServer) -> None:
    with MCPToolClient(base_url=server.url).sync() as client:
        client.reset(split="train", index=0)
        assert "add" in [tool.name for tool in client.list_tools()]
        assert client.call_tool("add", n=3) == "3"
        assert client.step(CallToolAction(tool_name="add", arguments={"n": 2})).done is False
        assert client.call_tool("add", n=0) == "5"
        assert "at most 1000" in str(client.call_tool("add", n=2000))
        ended = client.step(CallToolAction(tool_name="commit", arguments={}))
        assert (ended.reward, ended.done) == (0.5, True)
