"""What a model wrote, read as tool calls and text: one parser for each form of call.

Two forms are in use, both between `<tool_call>` tags: one JSON object (Qwen3, Hermes), and tags
for the function and each parameter (Qwen3-Coder, Qwen3.5), whose values only the tool's schema
can type. A call that can't be read is the model's own fault: it becomes a text for the model.
Nothing here raises, whatever the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from agent_env.types import ToolSpec

Form = Literal["json", "xml"]

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_THINK, _THOUGHT = "<think>", "</think>"
_END = re.compile(r"<\|im_end\|>|<\|endoftext\|>")
_FUNCTION = re.compile(r"<function=([^<>\n]*)>(.*?)</function>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^<>\n]*)>(.*?)</parameter>", re.DOTALL)
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_OF_WORDS = {"true": "boolean", "false": "boolean", "null": "null", "none": "null"}


@dataclass(frozen=True)
class ToolCall:
    """A call that can be sent; whether its arguments fit is for the server to say."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class BadCall:
    """A call that can't be read, and what to tell the model."""

    why: str


@dataclass(frozen=True)
class Reply:
    """One turn of the model, without its thinking."""

    text: str
    """What it says outside of its calls."""
    calls: tuple[ToolCall | BadCall, ...] = ()
    in_thought: bool = False
    """Whether it ended while still thinking, so that it neither calls nor says anything."""


def form_of(template: str) -> Form | None:
    """The form of calls that a chat template teaches; None for one that teaches none."""
    if "<arg_key>" in template:  # GLM's, between the same tags
        return None
    if "<function=" in template:
        return "xml"
    return "json" if OPEN in template else None


def read_reply(text: str, form: Form, tools: Sequence[ToolSpec] = ()) -> Reply:
    """What the model's raw text means; `tools` type the values of the form "xml"."""
    said = _END.split(whole(text), maxsplit=1)[0]
    said, in_thought = _without_thought(said)
    schemas = {tool.name: tool.input_schema for tool in tools}
    read = _json_call if form == "json" else _xml_reader(schemas)
    calls: list[ToolCall | BadCall] = []
    rest = []
    while OPEN in said:
        before, _, said = said.partition(OPEN)
        found, said = read(said)
        rest.append(before)
        calls += found
    return Reply("".join([*rest, said]).strip(), tuple(calls), in_thought)


def _without_thought(said: str) -> tuple[str, bool]:
    """The text outside of its thinking; a template may have opened the first on its behalf."""
    before, closed, after = said.partition(_THOUGHT)
    if closed and _THINK not in before:
        said = after
    kept = []
    while _THINK in said:
        before, _, thought = said.partition(_THINK)
        kept.append(before)
        _, closed, said = thought.partition(_THOUGHT)
        if not closed:
            return "".join(kept), True
    return "".join([*kept, said]), False


Found = tuple[list[ToolCall | BadCall], str]
"""The calls of one block, and the text after it."""


def _json_call(text: str) -> Found:
    start = len(text) - len(text.lstrip())
    try:
        value, end = _DECODER.raw_decode(text, start)
        _check_whole(value)
    except (ValueError, RecursionError) as error:
        return [BadCall(f"the tool call isn't valid JSON: {error}")], _after_block(text)
    inside, closed, after = text[end:].partition(CLOSE)
    if not closed:
        return [BadCall(f"the tool call has no {CLOSE}")], ""
    if inside.strip():
        return [BadCall("a tool call holds one JSON object and nothing else")], after
    return [_checked(value)], after


def call_of(name: str, arguments: str) -> ToolCall | BadCall:
    """The call of that name with those arguments, JSON text of the model's."""
    try:
        value = _DECODER.decode(arguments)
        _check_whole([name, value])
    except (ValueError, RecursionError) as error:
        return BadCall(f"the arguments of {whole(name)} aren't valid JSON: {error}")
    return _checked({"name": name, "arguments": value})


def whole(text: str) -> str:
    """The text without halves of characters, which no tokenizer takes."""
    return text.encode(errors="replace").decode()


def _check_whole(value: Any) -> None:
    """Raises ValueError where JSON's escapes spell half a character."""
    if whole(spelled := json.dumps(value, ensure_ascii=False)) != spelled:
        raise ValueError("an escape spells half of a surrogate pair")


def _checked(value: Any) -> ToolCall | BadCall:
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str) or not name:
        return BadCall('a tool call is a JSON object with "name" and "arguments"')
    arguments = value.get("arguments", {})
    if not isinstance(arguments, dict):
        return BadCall(f'"arguments" of {name} must be a JSON object')
    return ToolCall(name, arguments)


def _after_block(text: str) -> str:
    return text.partition(CLOSE)[2]


def _xml_reader(schemas: dict[str, dict[str, Any]]) -> Callable[[str], Found]:
    def read(text: str) -> Found:
        body, closed, after = text.partition(CLOSE)
        if not closed:
            return [BadCall(f"the tool call has no {CLOSE}")], ""
        calls = [
            ToolCall(name.strip(), dict(_arguments(inner, schemas.get(name.strip(), {}))))
            for name, inner in _FUNCTION.findall(body)
            if name.strip()
        ]
        if not calls:
            why = (
                "a tool call is written <function=NAME>…</function>, with a <parameter=NAME> each"
            )
            return [BadCall(why)], after
        return [*calls], after

    return read


def _arguments(inner: str, schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    properties = schema.get("properties", {})
    for name, raw in _PARAMETER.findall(inner):
        key = name.strip()
        types = _types(properties.get(key, {}), schema.get("$defs", {}))
        yield key, _typed(raw.removeprefix("\n").removesuffix("\n"), types)


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
        value = _DECODER.decode(raw.strip())
        _check_whole(value)
    except (ValueError, RecursionError):
        return raw
    return value


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is too large a number")
    return number


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


# What JSON can't carry back would be refused as a broken frame, and cost the rollout its score.
_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse)
