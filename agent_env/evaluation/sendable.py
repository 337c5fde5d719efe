"""A move as it can be sent and written down: plain JSON, whatever a policy computed it with."""

from __future__ import annotations

import json
from typing import Any

from agent_env.errors import PolicyError
from agent_env.evaluation.history import Call, Move


def sendable(move: Move) -> Move:
    """The same move in plain JSON data; NumPy's and torch's numbers become Python's.

    Raises PolicyError for what JSON doesn't have: any other object, NaN, half a character.
    """
    if not isinstance(move, Move):
        raise PolicyError(f"the policy returned {move!r}, which is no Move")
    return Move(text=_text("the text", move.text), calls=tuple(map(_call, move.calls)))


def _call(call: Call) -> Call:
    name = _text("a tool's name", call.name)
    arguments = _plain(f"the arguments of {name}", call.arguments)
    if not isinstance(arguments, dict):
        raise PolicyError(f"the arguments of {name} are {call.arguments!r}, not a dict")
    return Call(name=name, arguments=arguments, fault=call.fault)


def _text(what: str, said: object) -> str:
    found = _plain(what, said)
    if not isinstance(found, str):
        raise PolicyError(f"{what} is {said!r}, not a str")
    return found


def _plain(what: str, said: object) -> Any:
    try:
        text = json.dumps(said, default=_number, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise PolicyError(f"{what} can't be sent as JSON: {error}") from error
    return json.loads(text)


def _number(said: Any) -> Any:
    """NumPy's scalars and arrays, and torch's tensors, have this method; little else does."""
    if not callable(getattr(said, "tolist", None)):
        raise TypeError(f"{said!r} is {type(said).__name__}")
    return said.tolist()
