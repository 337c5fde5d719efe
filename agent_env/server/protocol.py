"""OpenEnv's frames: text JSON, one in flight, no key at the top but `type` and `data`.

Error codes are OpenEnv's, which stock clients match as strings; what they can't say is said by
`reason` inside the error's data.
"""

from __future__ import annotations

import difflib
import json
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent_env.types import Observation

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


Frame = Reset | ListTools | CallTool | State | Close

_STEPS: dict[str, type[ListTools] | type[CallTool]] = {
    "list_tools": ListTools,
    "call_tool": CallTool,
}


def parse_frame(text: str | None) -> Frame:
    """Read a client's frame. Raises FrameError, which names what is wrong and the nearest name."""
    kind, data = _envelope(text)
    match kind:
        case "reset":
            return _validated(Reset, data)
        case "step":
            return _step(data)
        case "state":
            return _validated(State, data)
        case "close":
            return Close()
        case _:
            raise FrameError("UNKNOWN_TYPE", f"Unknown message type: {kind!r}")


def observation_frame(observation: Observation) -> str:
    """Reward and done stand beside the observation, its metadata in both places."""
    body = observation.model_dump(mode="json", exclude={"reward", "done"})
    return _dump(
        "observation",
        observation=body,
        reward=observation.reward,
        done=observation.done,
        metadata=observation.metadata,
    )


def state_frame(state: BaseModel) -> str:
    """The reply to `state`."""
    return _dump("state", **state.model_dump(mode="json"))


def error_frame(code: Code, message: str, **extra: Any) -> str:
    """The reply to anything that can't be done."""
    return _dump("error", message=message, code=code, **extra)


def _dump(kind: str, **data: Any) -> str:
    return json.dumps({"type": kind, "data": data}, allow_nan=False)


def _envelope(text: str | None) -> tuple[object, dict[str, Any]]:
    try:
        message = json.loads(text or "")
    except ValueError as error:
        raise FrameError("INVALID_JSON", f"Invalid JSON: {error}") from None
    if not isinstance(message, dict):
        raise FrameError("INVALID_JSON", "a frame is a JSON object")
    data = message.get("data", {})
    extra = sorted(set(message) - {"type", "data"})
    if extra or not isinstance(data, dict):
        fault = f"unknown key {extra[0]!r}" if extra else "data must be an object"
        raise FrameError("VALIDATION_ERROR", f"{fault}; a frame has type and data", errors=[])
    return message.get("type"), data


def _step(data: dict[str, Any]) -> Frame:
    kind = data.get("type")
    model = _STEPS.get(kind) if isinstance(kind, str) else None
    if model is None:
        known = ", ".join(_STEPS)
        raise FrameError("VALIDATION_ERROR", f"no step {kind!r}; there are: {known}", errors=[])
    return _validated(model, data)


def _validated(model: type[M], data: dict[str, Any]) -> M:
    _refuse_unknown(model, data)
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
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            message = f"{model.__name__.lower()}: unknown argument {name!r}; {hint}"
            raise FrameError("VALIDATION_ERROR", message, errors=[], unknown=name)
