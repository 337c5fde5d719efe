"""A model behind a chat endpoint that speaks OpenAI's `POST /chat/completions` with tools."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from agent_env.errors import PolicyError
from agent_env.evaluation.history import Call, History, Message, Move, tool_schema

TIMEOUT_S = 600.0
TRIES = 5
LONGEST_PAUSE_S = 30.0

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Endpoint:
    """Asks it for each move; any thread may."""

    def __init__(
        self, model: str, base_url: str, *, key: str | None, sampling: Mapping[str, Any]
    ) -> None:
        """Raises PolicyError when it can't be reached, refuses the key, or has no such model.

        `sampling` is added to each request: `temperature`, `max_tokens` and the like.
        """
        self._model, self._sampling = model, dict(sampling)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(
            base_url=base_url,
            headers=headers,
            timeout=httpx.Timeout(TIMEOUT_S, connect=10.0),
            trust_env=urlsplit(base_url).hostname not in _LOOPBACK,
            # httpx allows 100 connections; the sessions of an eval are the limit here.
            limits=httpx.Limits(max_connections=None),
        )
        self._check()

    def __call__(self, history: History) -> Move:
        body = {
            "model": self._model,
            "messages": to_openai(history.messages),
            "tools": [tool_schema(spec) for spec in history.tools],
            "seed": int(history.digest(history.seed)[:8], 16) >> 1,
            **self._sampling,
        }
        return _move(self._post(body))

    def _check(self) -> None:
        try:
            reply = self._http.get("models")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            where = self._http.base_url
            raise PolicyError(f"no chat endpoint at {where}: {error}; see --base-url") from error
        if reply.status_code in (401, 403):
            raise PolicyError(
                f"{reply.url} answers HTTP {reply.status_code}: name the environment variable that"
                " holds the key with --key-env"
            )
        known = _model_ids(reply)
        if known and self._model not in known:
            raise PolicyError(f"{reply.url} has no model {self._model!r}: {', '.join(known[:20])}")

    def _post(self, body: dict[str, Any]) -> httpx.Response:
        """The reply to a request, tried again while the endpoint is busy or away."""
        for pause_s in _pauses():
            try:
                reply = self._http.post("chat/completions", json=body)
            except httpx.TransportError as error:
                if pause_s is None:
                    raise PolicyError(f"the endpoint can't be reached: {error}") from error
                threading.Event().wait(pause_s)
                continue
            busy = reply.status_code == 429 or reply.status_code >= 500
            if not busy or pause_s is None:
                break
            threading.Event().wait(max(pause_s, _asked_for(reply)))
        if reply.is_error:
            raise PolicyError(f"the endpoint answers HTTP {reply.status_code}: {reply.text[:500]}")
        return reply


def to_openai(messages: list[Message]) -> list[Message]:
    """Our messages as that API has them: numbered tool calls, arguments as JSON text."""
    numbers = iter(range(len(messages) * 1000))
    pending: list[str] = []
    told = []
    for message in messages:
        if message["role"] == "tool":
            told.append(_without_name(message) | {"tool_call_id": pending.pop(0)})
            continue
        pending = [f"call_{next(numbers)}" for _ in message.get("tool_calls", ())]
        told.append(message | _numbered(message, pending))
    return told


def _without_name(message: Message) -> Message:
    return {key: value for key, value in message.items() if key != "name"}


def _numbered(message: Message, ids: list[str]) -> Message:
    calls = [
        call
        | {
            "id": number,
            "function": call["function"]
            | {"arguments": json.dumps(call["function"]["arguments"])},
        }
        for number, call in zip(ids, message.get("tool_calls", ()), strict=True)
    ]
    return {"tool_calls": calls} if calls else {}


def _move(reply: httpx.Response) -> Move:
    try:
        message = reply.json()["choices"][0]["message"]
        calls = [_call(call["function"]) for call in message.get("tool_calls") or ()]
        return Move(text=message.get("content") or "", calls=tuple(calls))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise PolicyError(f"the endpoint's reply can't be read: {reply.text[:500]}") from error


def _call(function: dict[str, Any]) -> Call:
    name, text = str(function["name"]), function.get("arguments") or "{}"
    try:
        arguments = json.loads(text, parse_constant=_no_json) if isinstance(text, str) else text
    except ValueError as error:
        return Call(name=name, arguments={}, fault=f"error: {name}: arguments: {error}")
    if not isinstance(arguments, dict):
        return Call(name=name, arguments={}, fault=f"error: {name}: arguments: not an object")
    return Call(name=name, arguments=arguments)


def _no_json(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON number")


def _model_ids(reply: httpx.Response) -> list[str]:
    """The models that it lists; none where it lists nothing."""
    try:
        return [str(model["id"]) for model in reply.json()["data"]]
    except (ValueError, KeyError, TypeError):
        return []


def _pauses() -> Iterator[float | None]:
    """Seconds before each next try, with jitter; None before there is none."""
    for number in range(TRIES - 1):
        yield min(LONGEST_PAUSE_S, 2.0**number) * random.uniform(0.5, 1.0)  # noqa: S311
    yield None


def _asked_for(reply: httpx.Response) -> float:
    """Seconds that the endpoint asks to wait, within bounds; 0 when it doesn't."""
    text = reply.headers.get("retry-after", "")
    return min(float(text), LONGEST_PAUSE_S) if text.isdecimal() else 0.0
