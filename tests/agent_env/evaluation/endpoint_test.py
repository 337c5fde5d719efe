"""A chat endpoint's model plays; the endpoint here is a real server that speaks its protocol."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agent_env import AgentEnv
from agent_env.client.local import LocalServer
from agent_env.errors import PolicyError
from agent_env.evaluation.policies import endpoint as module
from agent_env.evaluation.policies.endpoint import Endpoint
from agent_env.evaluation.results import Row
from agent_env.evaluation.run import missing, play_all

Answer = tuple[int, Any]


class Chat(ThreadingHTTPServer):
    """An endpoint: `answers` says what comes back for a request's body, `asked` has the bodies."""

    daemon_threads = True

    def __init__(self, answers: Callable[[dict[str, Any]], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers, self.asked, self.key = answers, list[dict[str, Any]](), "secret"
        self.url = f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Chat

    def do_GET(self) -> None:
        if self.headers["Authorization"] != f"Bearer {self.server.key}":
            return self._reply(401, {"error": {"message": "no key"}})
        return self._reply(200, {"data": [{"id": "tiny"}]})

    def do_POST(self) -> None:
        assert self.path == "/v1/chat/completions"
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        self._reply(*self.server.answers(body))

    def _reply(self, status: int, body: Any) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


Serve = Callable[[Callable[[dict[str, Any]], Answer]], Chat]


@pytest.fixture
def serve() -> Iterator[Serve]:
    running: list[Chat] = []

    def start(answers: Callable[[dict[str, Any]], Answer]) -> Chat:
        running.append(Chat(answers))
        threading.Thread(target=running[-1].serve_forever, daemon=True).start()
        return running[-1]

    yield start
    for chat in running:
        chat.shutdown()
        chat.server_close()


def message(text: str | None, *calls: tuple[str, str]) -> Answer:
    """A completion with tool calls, whose arguments are JSON text."""
    made = [
        {"id": f"x{number}", "type": "function", "function": {"name": name, "arguments": text_}}
        for number, (name, text_) in enumerate(calls)
    ]
    said = {"role": "assistant", "content": text, **({"tool_calls": made} if made else {})}
    return 200, {"choices": [{"message": said, "finish_reason": "stop"}]}


def plays(env: AgentEnv, chat: Chat, *, split: str = "eval", **sampling: Any) -> list[Row]:
    policy = Endpoint("tiny", chat.url, key="secret", sampling=sampling)
    todo = missing(env.tasks(split)[:1], 1, 0, ())
    tools = tuple(env.tools(split))
    return list(play_all(todo, env.session, policy, tools=tools, max_calls=6, concurrency=1))


@pytest.fixture
def env(server: LocalServer) -> Iterator[AgentEnv]:
    with AgentEnv(server.url) as opened:
        yield opened


def test_a_model_calls_tools_and_answers(env: AgentEnv, serve: Serve) -> None:
    def answers(body: dict[str, Any]) -> Answer:
        if len(body["messages"]) == 2:
            return message(None, ("add", '{"n": 4}'), ("add", '{"n": 6}'))
        return message("ten")

    chat = serve(answers)
    (row,) = plays(env, chat, split="turns", temperature=0.7)
    assert (row.reward, row.tool_calls, row.turns) == (1.0, 2, 2)
    first, second, third = chat.asked
    assert (first["model"], first["temperature"]) == ("tiny", 0.7)
    assert [tool["function"]["name"] for tool in first["tools"]][:2] == ["add", "commit"]
    assert second["messages"][2]["tool_calls"] == [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": "add", "arguments": json.dumps({"n": n})},
        }
        for number, n in enumerate((4, 6))
    ]
    assert second["messages"][3:] == [
        {"role": "tool", "tool_call_id": "call_0", "content": "4"},
        {"role": "tool", "tool_call_id": "call_1", "content": "10"},
    ]
    assert third["messages"][-1] == {"role": "user", "content": "Are you sure?"}
    assert first["seed"] != second["seed"]


@pytest.mark.parametrize("arguments", ['{"n": ', "[1]", "3", '{"n": NaN}'])
def test_arguments_that_are_none_are_told_to_the_model(
    arguments: str, env: AgentEnv, serve: Serve
) -> None:
    chat = serve(
        lambda body: message("?") if len(body["messages"]) > 2 else message("", ("add", arguments))
    )
    (row,) = plays(env, chat)
    assert (row.status, row.reward, row.tool_failures) == ("scored", 0.0, 1)
    assert chat.asked[1]["messages"][-1]["content"].startswith("error: add: arguments: ")


@pytest.mark.parametrize(
    "answer",
    [
        (400, {"error": {"message": "too long"}}),
        (200, "<html>"),
        (200, {"choices": []}),
        (200, {"choices": [{"message": None}]}),
        (200, {"choices": [{"message": {"tool_calls": [{"function": {}}]}}]}),
    ],
)
def test_an_endpoint_that_fails_leaves_the_attempt_unscored(
    answer: Answer, env: AgentEnv, serve: Serve
) -> None:
    chat = serve(lambda _: answer)
    (row,) = plays(env, chat)
    assert (row.reward, row.code) == (None, "PolicyError")
    assert len(chat.asked) == 1


def test_a_busy_endpoint_is_asked_again_a_few_times(
    env: AgentEnv, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.01)
    busy = serve(lambda _: (503, "busy") if len(busy.asked) < 3 else message("?"))
    (row,) = plays(env, busy)
    assert (row.status, len(busy.asked)) == ("scored", 3)
    gone = serve(lambda _: (429, "busy"))
    (row,) = plays(env, gone)
    assert (row.reward, row.code, len(gone.asked)) == (None, "PolicyError", module.TRIES)
    assert "HTTP 429" in str(row.error)


def test_a_wrong_endpoint_key_or_model_is_refused_at_once(serve: Serve) -> None:
    chat = serve(lambda _: message("?"))
    with pytest.raises(PolicyError, match="has no model 'huge': tiny"):
        Endpoint("huge", chat.url, key="secret", sampling={})
    with pytest.raises(PolicyError, match=r"HTTP 401.*--key-env"):
        Endpoint("tiny", chat.url, key=None, sampling={})
    for nowhere in ("http://127.0.0.1:9/v1", "ftp://127.0.0.1/", "nonsense"):
        with pytest.raises(PolicyError, match="no chat endpoint at"):
            Endpoint("tiny", nowhere, key=None, sampling={})
    assert chat.asked == []
