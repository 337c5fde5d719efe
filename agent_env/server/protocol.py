"""OpenEnv's frames: text JSON, one in flight, no key at the top but `type` and `data`.

Error codes are OpenEnv's, which stock clients match as strings; what they can't say is said by
`reason` inside the error's data. A right frame is read without a model; a wrong one is read again
with it, so that the refusal names what is wrong.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

M = TypeVar("M", bound=BaseModel)

Code = Literal[
    "INVALID_JSON",
    "UNKNOWN_TYPE",
    "VALIDATION_ERROR",
    "EXECUTION_ERROR",
    "CAPACITY_REACHED",
    "FACTORY_ERROR",
    "SESSION_ERROR",
]

SESSION_ID = r"[A-Za-z0-9_-]{8,64}"
"""What may name a session: also a file name, so nothing that means something in a path."""


class FrameError(Exception):
    """A frame that can't be carried out; the session stays open."""

    def __init__(self, code: Code, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.code: Code = code
        self.message = message
        self.extra = extra

    def frame(self) -> str:
        """The error frame that says so."""
        return error_frame(self.code, self.message, **self.extra)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Reset(_Strict):
    """`reset`: which task, and from which seed. Split and index go together; neither = first."""

    split: str | None = None
    index: int | None = Field(default=None, ge=0)
    seed: int | None = None
    episode_id: str | None = None
    deadline_s: float | None = Field(default=None, gt=0)
    """Seconds that the server may take."""


class StepMetadata(BaseModel):
    """What we read of a step's free metadata."""

    seq: int | None = Field(default=None, ge=1)
    """The step's number in its episode, from 1."""
    deadline_s: float | None = Field(default=None, gt=0)
    """Seconds that the server may take."""


class ListTools(_Strict):
    """`step` of type `list_tools`."""

    type: Literal["list_tools"]
    metadata: dict[str, Any] = Field(default_factory=dict)


class CallTool(_Strict):
    """`step` of type `call_tool`."""

    type: Literal["call_tool"]
    tool_name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)


class State(_Strict):
    """`state`: where the episode stands."""


class Close(_Strict):
    """`close`: the client is done with the session."""


@dataclass(slots=True)
class Step:
    """A step as it is carried out and journaled."""

    tool_name: str | None
    """None lists the tools."""
    arguments: dict[str, Any]
    seq: int | None = None
    deadline_s: float | None = None

    def action(self) -> dict[str, Any]:
        """The step as JSON data, without what only this sending of it needs."""
        if self.tool_name is None:
            return {"type": "list_tools"}
        return {"type": "call_tool", "tool_name": self.tool_name, "arguments": self.arguments}


@dataclass(slots=True)
class Rpc:
    """`mcp`: a JSON-RPC request."""

    request: dict[str, Any]


Frame = Reset | Step | State | Close | Rpc

_TOP_KEYS = frozenset({"type", "data"})
_CALL_KEYS = frozenset({"type", "tool_name", "arguments", "metadata"})
_STEPS: dict[str, type[ListTools] | type[CallTool]] = {
    "list_tools": ListTools,
    "call_tool": CallTool,
}


def parse_frame(text: str | None) -> Frame:
    """Read a client's frame. Raises FrameError, which names what is wrong and the nearest name."""
    kind, data = _envelope(text)
    match kind:
        case "step":
            return _call(data) or _step(data)
        case "reset":
            return _validated(Reset, data)
        case "state":
            return _validated(State, data)
        case "mcp":
            return Rpc(data)
        case "close":
            return Close()
        case _:
            raise FrameError("UNKNOWN_TYPE", f"Unknown message type: {kind!r}")


def parse_action(action: dict[str, Any]) -> Step:
    """A journaled action as the step it was. Raises FrameError."""
    return _call(action) or _step(action)


def parse_reset(data: dict[str, Any]) -> Reset:
    """The data of a `reset`. Raises FrameError."""
    return _validated(Reset, data)


def error_frame(code: Code, message: str, **extra: Any) -> str:
    """The reply to anything that can't be done."""
    return dump({"type": "error", "data": {"message": message, "code": code, **extra}})


def state_frame(state: BaseModel) -> str:
    """The reply to `state`."""
    return dump({"type": "state", "data": state.model_dump(mode="json")})


def dump(value: dict[str, Any]) -> str:
    """JSON text, also of strings that aren't Unicode: a model can write half a surrogate pair."""
    try:
        return to_json(value).decode()
    except (PydanticSerializationError, UnicodeError):
        return json.dumps(value)


def load(text: str | bytes) -> Any:
    """JSON data. Raises ValueError."""
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)


def _envelope(text: str | None) -> tuple[object, dict[str, Any]]:
    try:
        message = load(text or "")
    except (ValueError, RecursionError) as error:
        raise FrameError("INVALID_JSON", f"Invalid JSON: {error}") from None
    if not isinstance(message, dict):
        raise FrameError("INVALID_JSON", "a frame is a JSON object")
    data = message.get("data", {})
    if not isinstance(data, dict) or not message.keys() <= _TOP_KEYS:
        extra = sorted(message.keys() - _TOP_KEYS)
        fault = f"unknown key {extra[0]!r}" if extra else "data must be an object"
        raise FrameError("VALIDATION_ERROR", f"{fault}; a frame has type and data", errors=[])
    return message.get("type"), data


def _call(data: dict[str, Any]) -> Step | None:
    """The common step, read by hand; None for what isn't plainly right."""
    name, arguments = data.get("tool_name"), data.get("arguments", {})
    if data.get("type") != "call_tool" or type(name) is not str or type(arguments) is not dict:
        return None
    metadata = data.get("metadata")
    if not data.keys() <= _CALL_KEYS:
        return None
    if metadata is None:
        return Step(name, arguments) if "metadata" not in data else None
    if type(metadata) is not dict:
        return None
    seq, deadline_s = metadata.get("seq"), metadata.get("deadline_s")
    if (type(seq) is int and seq > 0) and deadline_s is None:
        return Step(name, arguments, seq)
    return None


def _step(data: dict[str, Any]) -> Step:
    kind = data.get("type")
    model = _STEPS.get(kind) if isinstance(kind, str) else None
    if model is None:
        known = ", ".join(_STEPS)
        raise FrameError("VALIDATION_ERROR", f"no step {kind!r}; there are: {known}", errors=[])
    action = _validated(model, data)
    sent = _checked(StepMetadata, action.metadata)
    if isinstance(action, ListTools):
        return Step(None, {}, sent.seq, sent.deadline_s)
    return Step(action.tool_name, action.arguments, sent.seq, sent.deadline_s)


def _validated(model: type[M], data: dict[str, Any]) -> M:
    _refuse_unknown(model, data)
    return _checked(model, data)


def _checked(model: type[M], data: dict[str, Any]) -> M:
    try:
        return model.model_validate(data, strict=True)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        said = "; ".join(f"{'.'.join(map(str, f['loc']))}: {f['msg']}" for f in faults)
        raise FrameError("VALIDATION_ERROR", said, errors=faults) from None


def _refuse_unknown(model: type[BaseModel], data: dict[str, Any]) -> None:
    known = list(model.model_fields)
    for name in data:
        if name not in known:
            near = difflib.get_close_matches(name[:64], known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            message = f"{model.__name__.lower()}: unknown argument {name!r}; {hint}"
            raise FrameError("VALIDATION_ERROR", message, errors=[], unknown=name)
