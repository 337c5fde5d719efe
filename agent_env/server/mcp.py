"""JSON-RPC 2.0 as OpenEnv speaks it: `tools/list`, `tools/call`, and sessions without a socket.

A `tools/call` is a step of the session: numbered, journaled and answered once like any other, with
the number in `params.metadata`. What it led to beside the text is in the result's `_meta`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from agent_env.server.protocol import FrameError, load, parse_action
from agent_env.server.session import Session

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SERVER_ERROR = -32000

_CODES = {"VALIDATION_ERROR": INVALID_PARAMS, "CAPACITY_REACHED": SERVER_ERROR}

Method = Callable[[dict[str, Any]], Awaitable[Any]]


class RpcError(Exception):
    """A request that can't be answered."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


async def answer(request: Any, methods: dict[str, Method]) -> dict[str, Any]:
    """The reply to one request; never raises."""
    known = isinstance(request, dict)
    number = request.get("id") if known else None
    try:
        if not known or request.get("jsonrpc") != "2.0":
            raise RpcError(INVALID_REQUEST, 'a request is an object with jsonrpc: "2.0"')
        method, params = request.get("method"), request.get("params", {})
        if not isinstance(params, dict):
            raise RpcError(INVALID_PARAMS, "params must be an object")
        if not isinstance(method, str) or method not in methods:
            known_names = ", ".join(methods)
            raise RpcError(METHOD_NOT_FOUND, f"no method {method!r}; there are: {known_names}")
        return {"jsonrpc": "2.0", "id": number, "result": await methods[method](params)}
    except FrameError as error:
        said = {"code": error.code, **error.extra}
        code = _CODES.get(error.code, INTERNAL_ERROR)
        return _error(number, RpcError(code, error.message, said))
    except RpcError as error:
        return _error(number, error)


async def answer_text(text: str | bytes, methods: dict[str, Method]) -> dict[str, Any]:
    """The reply to a request as it came; never raises."""
    try:
        request = load(text)
    except (ValueError, RecursionError) as error:
        return _error(None, RpcError(PARSE_ERROR, f"Parse error: {error}"))
    return await answer(request, methods)


def tool_methods(session: Session, holder: object) -> dict[str, Method]:
    """`tools/list` and `tools/call` as steps of a session."""

    async def carry(action: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        step = parse_action({**action, "metadata": params.get("metadata", {})})
        frame = session.answer_now(step) or await session.answer(step, holder)
        data: dict[str, Any] = load(frame)["data"]
        return data

    async def list_tools(params: dict[str, Any]) -> Any:
        observation = await carry({"type": "list_tools"}, params)
        return {"tools": observation["observation"].get("tools", [])}

    async def call_tool(params: dict[str, Any]) -> Any:
        if not isinstance(params.get("name"), str):
            raise RpcError(INVALID_PARAMS, "params.name must be the tool's name")
        called = {"tool_name": params["name"], "arguments": params.get("arguments", {})}
        return _result(await carry({"type": "call_tool", **called}, params))

    return {"tools/list": list_tools, "tools/call": call_tool}


def _result(data: dict[str, Any]) -> dict[str, Any]:
    """A tool's result in MCP's shape."""
    observation = data["observation"]
    fault, result = observation.get("error"), observation.get("result") or {}
    failure = data["metadata"].get("error")
    text = fault["message"] if fault else failure or result.get("data") or result.get("prompt")
    content = result.get("content") or ([{"type": "text", "text": text}] if text else [])
    about = {"done": data["done"], "reward": data["reward"], "metadata": data["metadata"]}
    # `data` is what OpenEnv's tool client gives its caller.
    return {"content": content, "data": text, "isError": bool(fault or failure), "_meta": about}


def _error(number: Any, error: RpcError) -> dict[str, Any]:
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return {"jsonrpc": "2.0", "id": number, "error": body}
