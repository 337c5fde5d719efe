"""The server as any OpenEnv client meets it: frames written by hand, a real process."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from agent_env.client.local import LocalServer

from .conftest import COUNTER, Wire, dial, eventually


def get(server: LocalServer, path: str) -> Any:
    return httpx.get(server.url + path, trust_env=False, timeout=5).json()


def post(server: LocalServer, path: str, body: Any) -> httpx.Response:
    return httpx.post(server.url + path, json=body, trust_env=False, timeout=5)


def test_a_reset_shows_the_task_in_both_places(wire: Wire) -> None:
    reply = wire.ask("reset", split="eval", index=1, seed=3, episode_id="mine")
    assert reply["type"] == "observation"
    data = reply["data"]
    assert (data["done"], data["reward"]) == (False, None)
    assert data["metadata"] == data["observation"]["metadata"]
    assert data["metadata"]["prompt"] == "Count to 20. Seed 3."
    assert data["metadata"]["system_prompt"] == "You count."
    assert data["metadata"]["episode_id"] == "mine"
    assert data["metadata"]["task"] == {
        "id": "eval-1",
        "name": "count to 20",
        "split": "eval",
        "index": 1,
    }


def test_a_bare_reset_opens_the_first_task(wire: Wire) -> None:
    assert wire.ask("reset")["data"]["metadata"]["task"]["id"] == "train-0"


def test_tools_are_listed_and_called_as_steps(wire: Wire) -> None:
    wire.ask("reset", split="eval", index=0)
    tools = wire.ask("step", type="list_tools")["data"]["observation"]["tools"]
    assert [tool["name"] for tool in tools] == ["add", "commit", "wait", "crash", "end_turn"]
    observation = wire.call("add", n=4)["observation"]
    assert observation["tool_name"] == "add"
    assert observation["error"] is None
    assert observation["result"] == {
        "content": [{"type": "text", "text": "4"}],
        "structured_content": None,
        "meta": None,
        "data": "4",
        "is_error": False,
    }


@pytest.mark.parametrize(
    "tool, arguments, kind",
    [
        ("add", {"n": "four"}, "invalid_args"),
        ("end_turn", {"reply": "x"}, "invalid_args"),
        ("subtract", {}, "tool_not_found"),
        ("add", {"n": 5000}, "execution_error"),
    ],
)
def test_a_wrong_call_is_told_to_the_model_and_the_episode_goes_on(
    wire: Wire, tool: str, arguments: dict[str, Any], kind: str
) -> None:
    wire.ask("reset", split="eval", index=0)
    reply = wire.call(tool, **arguments)
    assert reply["observation"]["error"]["error_type"] == kind
    assert (reply["done"], reply["reward"]) == (False, None)
    assert wire.call("add", n=10)["observation"]["result"]["data"] == "10"


def test_the_last_step_carries_reward_and_scores(wire: Wire) -> None:
    wire.ask("reset", split="eval", index=0)
    wire.call("add", n=5)
    reply = wire.call("commit")
    assert (reply["done"], reply["reward"]) == (True, 0.5)
    assert reply["metadata"]["scores"] == {"near": 0.5}
    assert reply["observation"]["result"]["data"] == "committed"
    for after in (wire.call("add", n=5), wire.call("end_turn", response="x")):
        assert (after["done"], after["reward"]) == (True, 0.5)
        assert after["metadata"]["scores"] == {"near": 0.5}
        assert "status" not in after["metadata"]
        assert after["observation"]["result"] is None
        assert after["observation"]["error"]["message"] == "the episode has ended; call reset"
    listed = wire.ask("step", type="list_tools")["data"]
    assert len(listed["observation"]["tools"]) == 5
    assert (listed["done"], listed["reward"]) == (True, 0.5)
    assert wire.ask("state")["data"]["done"] is True


def test_a_call_after_a_failure_is_told_of_it_again(wire: Wire) -> None:
    wire.ask("reset", split="eval", index=0)
    failed = wire.call("crash")
    assert (failed["observation"]["result"], failed["observation"]["error"]) == (None, None)
    after = wire.call("add", n=5)
    assert (after["done"], after["reward"]) == (True, None)
    assert after["metadata"]["status"] == "error"
    assert after["metadata"]["error"] == "crash: RuntimeError: the simulation blew up"
    assert after["observation"]["error"]["message"] == "the episode has ended; call reset"


def test_a_two_turn_task_asks_again(wire: Wire) -> None:
    wire.ask("reset", split="turns", index=0)
    wire.call("add_word", word="three", times=2)
    first = wire.call("end_turn", response="six")
    assert first["observation"]["result"] == {
        "prompt": "Are you sure?",
        "system_prompt": "You count.",
    }
    assert not first["done"]
    assert wire.ask("state")["data"]["turn"] == 1
    last = wire.call("end_turn", response="yes")
    assert (last["done"], last["reward"]) == (True, 0.6)


def test_a_broken_environment_ends_the_episode_unscored(wire: Wire) -> None:
    wire.ask("reset", split="eval", index=0)
    reply = wire.call("crash")
    assert (reply["done"], reply["reward"]) == (True, None)
    assert reply["metadata"]["status"] == "error"
    assert "the simulation blew up" in reply["metadata"]["error"]
    assert wire.ask("reset", split="eval", index=0)["data"]["done"] is False


def test_a_step_on_a_session_that_was_never_reset_is_refused(wire: Wire) -> None:
    reply = wire.ask("step", type="call_tool", tool_name="add", arguments={"n": 1})
    assert reply["type"] == "error"
    assert reply["data"]["code"] == "EXECUTION_ERROR"
    assert reply["data"]["reason"] == "NOT_RESET"


@pytest.mark.parametrize(
    "frame, code, said",
    [
        ("{", "INVALID_JSON", "Invalid JSON"),
        ("[]", "INVALID_JSON", "object"),
        ('{"type": "dance"}', "UNKNOWN_TYPE", "dance"),
        ('{"type": "reset", "id": 1}', "VALIDATION_ERROR", "'id'"),
        ('{"type": "reset", "data": {"spllit": "eval"}}', "VALIDATION_ERROR", "mean 'split'"),
        ('{"type": "reset", "data": {"day": 3}}', "VALIDATION_ERROR", "'day'; known: split"),
        (
            '{"type": "reset", "data": {"split": "evla", "index": 0}}',
            "VALIDATION_ERROR",
            "mean 'eval'",
        ),
        ('{"type": "reset", "data": {"split": "eval", "index": 9}}', "VALIDATION_ERROR", "0 to 3"),
        ('{"type": "reset", "data": {"split": "eval"}}', "VALIDATION_ERROR", "both"),
        ('{"type": "reset", "data": {"seed": "x"}}', "VALIDATION_ERROR", "seed"),
        ('{"type": "step", "data": {"type": "jump"}}', "VALIDATION_ERROR", "jump"),
        (
            '{"type": "step", "data": {"type": "list_tools", "all": 1}}',
            "VALIDATION_ERROR",
            "'all'",
        ),
    ],
)
def test_a_wrong_frame_is_named_and_the_session_stays_open(
    wire: Wire, frame: str, code: str, said: str
) -> None:
    wire.socket.send(frame)
    data = wire.receive()["data"]
    assert data["code"] == code
    assert said in data["message"]
    assert wire.ask("reset")["type"] == "observation"


def test_a_binary_frame_is_refused(wire: Wire) -> None:
    wire.socket.send(b"\x00")
    assert wire.receive()["data"]["code"] == "INVALID_JSON"


def test_the_task_api_lists_tasks_and_keeps_their_data(server: LocalServer) -> None:
    assert get(server, "/list_environments") == ["counter"]
    assert [split["name"] for split in get(server, "/COUNTER/splits")] == [
        "train",
        "eval",
        "turns",
    ]
    assert post(server, "/counter/num_tasks", {"split": "eval"}).json() == {"num_tasks": 4}
    tasks = post(server, "/counter/tasks", {"split": "eval"}).json()["tasks"]
    assert [task["index"] for task in tasks] == [0, 1, 2, 3]
    assert "target" not in json.dumps(tasks)
    one = post(server, "/counter/task", {"split": "eval", "index": 2}).json()["task"]
    assert one == tasks[2]
    some = post(server, "/counter/task_range", {"split": "eval", "start": 1, "stop": 9}).json()
    assert some["tasks"] == tasks[1:]


@pytest.mark.parametrize(
    "path, body, status",
    [
        ("/other/tasks", {"split": "eval"}, 404),
        ("/counter/task", {"split": "eval", "index": 4}, 400),
        ("/counter/task", {"split": "eval", "index": -1}, 400),
        ("/counter/tasks", {"split": "evel"}, 400),
        ("/counter/tasks", {"splits": "eval"}, 422),
        ("/counter/task", {"split": "eval", "index": "one"}, 422),
    ],
)
def test_the_task_api_answers_mistakes_as_openenv_does(
    server: LocalServer, path: str, body: dict[str, Any], status: int
) -> None:
    reply = post(server, path, body)
    assert reply.status_code == status
    assert reply.json()["detail"]


def test_facts_are_served_over_http(server: LocalServer) -> None:
    assert get(server, "/health") == {"status": "healthy"}
    assert get(server, "/metadata")["name"] == "counter"
    assert set(get(server, "/schema")) >= {"action", "observation", "state", "reset_observation"}
    assert get(server, "/tools")["splits"]["turns"]["tools"][-2]["name"] == "add_word"


def test_a_full_server_says_so_and_has_room_again_when_a_client_is_gone() -> None:
    with LocalServer(COUNTER, max_sessions=1) as server:
        with dial(server.url) as first:
            Wire(first).ask("reset")
            with dial(server.url) as second:
                data = Wire(second).ask("reset")["data"]
                assert data["code"] == "CAPACITY_REACHED"
                assert (data["active_sessions"], data["max_sessions"]) == (1, 1)
                with pytest.raises(ConnectionClosed):
                    second.recv(5)
            assert get(server, "/capacity")["free"] == 0
        eventually(lambda: get(server, "/capacity")["free"] == 1, 5.0)
        with dial(server.url) as third:
            assert Wire(third).ask("reset")["type"] == "observation"


def test_there_is_no_session_to_attach_to(server: LocalServer) -> None:
    with dial(server.url, "?session_id=old") as socket:
        assert json.loads(socket.recv(5))["data"]["code"] == "SESSION_ERROR"


def test_a_slow_step_does_not_stall_the_server(server: LocalServer, wire: Wire) -> None:
    wire.ask("reset")
    wire.send("step", type="call_tool", tool_name="wait", arguments={"seconds": 2.0})
    eventually(lambda: get(server, "/capacity")["busy_sessions"] == 1)
    assert get(server, "/health")["status"] == "healthy"
    assert get(server, "/capacity")["busy_sessions"] == 1
    assert wire.receive()["data"]["observation"]["result"]["data"] == "waited"


def test_a_slot_is_free_only_once_its_step_has_ended(server: LocalServer) -> None:
    eventually(lambda: get(server, "/capacity")["active_sessions"] == 0)
    with dial(server.url) as socket:
        Wire(socket).ask("reset")
        Wire(socket).send("step", type="call_tool", tool_name="wait", arguments={"seconds": 1.0})
        eventually(lambda: get(server, "/capacity")["busy_sessions"] == 1)
    assert get(server, "/capacity")["active_sessions"] == 1
    eventually(lambda: get(server, "/capacity")["active_sessions"] == 0, 3.0)


def test_a_stopping_server_finishes_the_running_step_and_refuses_new_ones() -> None:
    server = LocalServer(COUNTER, max_sessions=4)
    with dial(server.url) as busy, dial(server.url) as idle:
        Wire(busy).ask("reset")
        Wire(idle).ask("reset")
        Wire(busy).send("step", type="call_tool", tool_name="wait", arguments={"seconds": 1.0})
        eventually(lambda: get(server, "/capacity")["busy_sessions"] == 1)
        stopper = threading.Thread(target=server.stop)
        stopper.start()
        eventually(lambda: get(server, "/health")["status"] == "stopping")
        with pytest.raises(ConnectionClosed, match="1012"):
            Wire(idle).ask("reset")
        assert Wire(busy).receive()["data"]["observation"]["result"]["data"] == "waited"
        stopper.join()
    assert not server.running
