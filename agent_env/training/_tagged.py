"""Calls as tags, `<function=NAME>` with a `<parameter=NAME>` each: Qwen3-Coder's and Qwen3.5's.

A value stands between its tags as it is, so only the tool's schema tells a number from a text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agent_env.training._strict_json import decoded

Named = tuple[str, dict[str, Any]]
"""A function's name and its arguments."""

_FUNCTION = re.compile(r"\s*<function=([^<>\n]*)>")
_VALUE = r"(?:(?!<parameter=|<function=|<tool_call>|</parameter>).)*"
"""Any other mark in a value is text; these mean that its own end is missing."""
_PARAMETER = re.compile(rf"\s*<parameter=([^<>\n]*)>({_VALUE})</parameter>", re.DOTALL)
_FUNCTION_END = re.compile(r"\s*</function>")
_BLOCK_END = re.compile(r"\s*</tool_call>")
_ANY_FUNCTION = re.compile(r"<function=([^<>\n]*)>(.*?)</function>", re.DOTALL)
_ANY_PARAMETER = re.compile(r"<parameter=([^<>\n]*)>(.*?)</parameter>", re.DOTALL)
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_OF_WORDS = {"true": "boolean", "false": "boolean", "null": "null", "none": "null"}

Schemas = Mapping[str, Mapping[str, Any]]


def in_order(text: str, schemas: Schemas) -> tuple[list[Named], int] | None:
    """The functions of a block with nothing between its tags but values, and where it ends.

    `text` begins after `<tool_call>`. None for a block that isn't like that.
    """
    found, at = [], 0
    while begun := _FUNCTION.match(text, at):
        given, at = [], begun.end()
        while parameter := _PARAMETER.match(text, at):
            given.append((parameter[1], parameter[2]))
            at = parameter.end()
        if not (ended := _FUNCTION_END.match(text, at)):
            return None
        at = ended.end()
        found.append((begun[1], given))
    closed = _BLOCK_END.match(text, at)
    return (_named(found, schemas), closed.end()) if found and closed else None


def anywhere(body: str, schemas: Schemas) -> list[Named]:
    """The functions that are to be found between the block's tags, whatever else is there."""
    found = [(name, _ANY_PARAMETER.findall(inner)) for name, inner in _ANY_FUNCTION.findall(body)]
    return _named(found, schemas)


def _named(found: list[tuple[str, list[tuple[str, str]]]], schemas: Schemas) -> list[Named]:
    return [
        (name.strip(), _arguments(given, schemas.get(name.strip(), {})))
        for name, given in found
        if name.strip()
    ]


def _arguments(given: list[tuple[str, str]], schema: Mapping[str, Any]) -> dict[str, Any]:
    properties, arguments = schema.get("properties", {}), {}
    for name, raw in given:
        key = name.strip()
        types = _types(properties.get(key, {}), schema.get("$defs", {}))
        arguments[key] = _typed(raw.removeprefix("\n").removesuffix("\n"), types)
    return arguments


def _types(schema: dict[str, Any], defs: dict[str, Any]) -> set[str]:
    """The names of the JSON types that a value of that schema may have; empty for any."""
    named = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if named in defs:
        return _types(defs[named], {})
    if "anyOf" in schema:
        return {name for option in schema["anyOf"] for name in _types(option, defs)}
    listed = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if "type" not in schema and listed:
        return {_type_of(value) for value in listed}
    kind = schema.get("type", [])
    return {kind} if isinstance(kind, str) else set(kind)


def _type_of(value: Any) -> str:
    names = {bool: "boolean", str: "string", type(None): "null", int: "integer", float: "number"}
    return names.get(type(value), "object")


def _typed(raw: str, types: set[str]) -> Any:
    """The text as one of those types; as it stands if it is none, which the server then says."""
    word = raw.strip().lower()
    if _OF_WORDS.get(word) in types:
        return _WORDS[word]
    if not types or "string" in types:
        return raw
    try:
        return decoded(raw.strip())
    except (ValueError, RecursionError):
        return raw
