"""Tool specs turned into Python functions that a trainer can read.

A trainer makes the model's tool schema from a function's signature, type hints and Google
docstring; so each spec is written back as exactly those.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable
from typing import Any, Literal

from agent_env.errors import BundleError, ToolError
from agent_env.training._strict_json import whole
from agent_env.types import RESERVED_TOOLS, ToolSpec

_ENDED = "The episode has ended."

_BASIC: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": type(None),
    "object": dict,
}


def tool_function(spec: ToolSpec, call: Callable[[Any, str, dict[str, Any]], str]) -> Any:
    """A method that passes its arguments to `call(self, name, arguments)`.

    Arguments left out are not sent, so that the server's own defaults apply. Raises BundleError
    for a tool or an argument whose name Python or the trainer can't take.
    """
    signature = _signature(spec)

    def method(self: Any, *args: Any, **kwargs: Any) -> str:
        bound = signature.bind(self, *args, **kwargs)
        given = dict(list(bound.arguments.items())[1:])
        return call(self, spec.name, given)

    method.__name__ = method.__qualname__ = spec.name
    method.__doc__ = _docstring(spec)
    method.__annotations__ = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if name != "self"
    } | {"return": str}
    method.__signature__ = signature  # type: ignore[attr-defined]  # read by inspect.signature
    return method


def tool_text(reply: dict[str, Any]) -> str:
    """What a tool's reply says to the model, as any tokenizer takes it. Raises ToolError."""
    if reply.get("error"):
        raise ToolError(whole(str(reply["error"]["message"])))
    return whole(_result_text(reply))


def _result_text(reply: dict[str, Any]) -> str:
    result = reply.get("result")
    if not isinstance(result, dict):
        return _ENDED if result is None else str(result)
    for name in ("data", "prompt"):
        if result.get(name) is not None:
            return str(result[name])
    return "\n".join(str(part.get("text", "")) for part in result.get("content") or [])


def annotation(schema: dict[str, Any]) -> Any:
    """The Python type that a JSON Schema means; Any for what has none."""
    if "enum" in schema:
        return Literal[tuple(schema["enum"])]
    if "const" in schema:
        return Literal[schema["const"]]
    if "anyOf" in schema:
        return _union([annotation(option) for option in schema["anyOf"]])
    kind = schema.get("type")
    if isinstance(kind, list):
        return _union([annotation({**schema, "type": one}) for one in kind])
    if kind == "array":
        return list[annotation(schema["items"])] if schema.get("items") else list  # type: ignore[misc]
    return _BASIC.get(kind, Any) if isinstance(kind, str) else Any


def _union(options: list[Any]) -> Any:
    union = options[0]
    for option in options[1:]:
        union = union | option
    return union


def _signature(spec: ToolSpec) -> inspect.Signature:
    properties: dict[str, Any] = spec.input_schema.get("properties", {})
    required = set(spec.input_schema.get("required", ()))
    for name in (spec.name, *properties):
        if not name.isidentifier() or keyword.iskeyword(name) or name == "self":
            raise BundleError(f"tool {spec.name!r}: {name!r} can't be a name in Python")
    if spec.name.startswith("_") or spec.name in RESERVED_TOOLS - {"end_turn"}:
        raise BundleError(f"tool {spec.name!r}: trainers keep that name for themselves")
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    # Python wants arguments with a default last; models call by name, so the order is free.
    for name in sorted(properties, key=lambda name: name not in required):
        default = inspect.Parameter.empty if name in required else properties[name].get("default")
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=default,
                annotation=annotation(_resolved(properties[name], spec.input_schema)),
            )
        )
    return inspect.Signature(parameters, return_annotation=str)


def _resolved(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """The schema with its `$ref` looked up; one level, deeper ones are any object."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    found: dict[str, Any] = root.get("$defs", {}).get(name, schema)
    return found


def _docstring(spec: ToolSpec) -> str:
    properties: dict[str, Any] = spec.input_schema.get("properties", {})
    lines = [spec.description]
    if properties:
        lines += ["", "Args:"]
    for name, schema in properties.items():
        text = " ".join(str(schema.get("description", name)).split())
        lines.append(f"    {name}: {text}")
    return "\n".join([*lines, "", "Returns:", "    What the environment answers.", ""])
