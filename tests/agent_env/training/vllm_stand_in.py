"""An HTTP server that answers TRL's rollout worker as vLLM would, with scripted completions.

It says what a function of the prompt says, in the tokens of the trained model's own tokenizer, so
that all else is real: the worker, its process, the parsing of calls, and the environments.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import Any

# As our programs do; the worker's process inherits it.
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
rollout_worker = import_module("trl.experimental.async_grpo.async_rollout_worker")

CALL = '<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
LOG_PROBABILITY = -1.0


def call(name: str, **arguments: Any) -> str:
    """A tool call as the tiny model writes it."""
    return CALL.format(name=name, arguments=json.dumps(arguments))


class StandIn(ThreadingHTTPServer):
    """Serves from a thread; requests that `is_held` says so wait to be let go."""

    daemon_threads = True

    def __init__(
        self,
        tokenizer: Any,
        say: Callable[[str], str],
        is_held: Callable[[str], bool] = lambda _: False,
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._tokenizer = tokenizer
        self._say = say
        self._is_held = is_held
        self._turn = threading.Condition()
        self._waiting = 0
        self._let = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, *_: object) -> None:
        """A worker that was killed doesn't listen to its answer."""

    def wait_for(self, count: int) -> None:
        """Until so many requests are held."""
        with self._turn:
            assert self._turn.wait_for(lambda: self._waiting >= count, timeout=60)

    def let(self, count: int) -> None:
        """So many held requests get their answer."""
        with self._turn:
            self._let += count
            self._turn.notify_all()

    def complete(self, request: dict[str, Any]) -> dict[str, Any]:
        """The body of the answer."""
        prompt = self._tokenizer.decode(request["prompt"])
        if self._is_held(prompt):
            self._hold()
        ids = self._tokenizer(self._say(prompt), add_special_tokens=False)["input_ids"]
        ids = [*ids, self._tokenizer.eos_token_id][: request["max_tokens"]]
        logprobs = {"token_logprobs": [LOG_PROBABILITY] * len(ids)}
        return {"choices": [{"token_ids": ids, "logprobs": logprobs}]}

    def _hold(self) -> None:
        with self._turn:
            self._waiting += 1
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._let > 0)
            self._let -= 1
            self._waiting -= 1

    def stop(self) -> None:
        """Let everyone go, and serve no more."""
        self.let(1000)
        self.shutdown()
        self.server_close()


@contextmanager
def stopping(one: StandIn) -> Iterator[StandIn]:
    """The server until the block ends."""
    try:
        yield one
    finally:
        one.stop()


class _Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_GET(self) -> None:
        known = {"/health": {}, "/v1/models": {"data": [{"max_model_len": 1024}]}}
        self._answer(known[self.path])

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(self.server.complete(asked))

    def _answer(self, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Nothing."""
