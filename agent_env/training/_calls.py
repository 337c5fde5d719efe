"""What a model wrote, read as tool calls and text: one reader for each form of call.

Two forms are in use, both between `<tool_call>` tags: one JSON object (Qwen3, Hermes), and tags
for the function and each parameter (Qwen3-Coder, Qwen3.5). A mark inside a string of a call is
text. A call that can't be read is the model's own fault: it becomes a text for the model. Nothing
here raises, whatever the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agent_env.training import _tagged
from agent_env.training._strict_json import decoded, first_decoded, whole
from agent_env.types import ToolSpec

Form = Literal["json", "xml"]

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_THINK, _THOUGHT = "<think>", "</think>"
_ENDS = ("<|im_end|>", "<|endoftext|>")


def _any_of(*marks: str) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, marks)))


_MARK = _any_of(OPEN, _THINK, _THOUGHT, *_ENDS)
_THOUGHT_OVER = _any_of(_THOUGHT, *_ENDS)
_CALL_OVER = _any_of(CLOSE, _THINK, _THOUGHT, *_ENDS)


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
    text, at, has_thought = whole(text), 0, False
    block = _json_block if form == "json" else _tagged_block(tools)
    said: list[str] = []
    calls: list[ToolCall | BadCall] = []
    while mark := _MARK.search(text, at):
        said.append(text[at : mark.start()])
        at = mark.end()
        if mark[0] == OPEN:
            found, length = block(text[at:])
            calls += found
            at += length
        elif mark[0] == _THINK:
            over = _THOUGHT_OVER.search(text, at)
            if over is None or over[0] != _THOUGHT:
                return _reply(said, calls, in_thought=True)
            at, has_thought = over.end(), True
        elif mark[0] in _ENDS:
            return _reply(said, calls)
        elif has_thought:
            said.append(mark[0])
        else:  # The template opened the thought on the model's behalf: all of it was thinking.
            said, calls, has_thought = [], [], True
    return _reply([*said, text[at:]], calls)


def _reply(said: list[str], calls: list[ToolCall | BadCall], *, in_thought: bool = False) -> Reply:
    return Reply("".join(said).strip(), tuple(calls), in_thought)


Found = tuple[list[ToolCall | BadCall], int]
"""The calls of one block, and how long it is."""


def _json_block(text: str) -> Found:
    try:
        value, end = first_decoded(text)
    except (ValueError, RecursionError) as error:
        _, length, _ = _block_end(text, 0)
        return [BadCall(f"the tool call isn't valid JSON: {error}")], length
    rest, length, closed = _block_end(text, end)
    if not closed:
        return [_without_end()], length
    if rest.strip():
        return [BadCall("a tool call holds one JSON object and nothing else")], length
    return [_checked(value)], length


def _block_end(text: str, start: int) -> tuple[str, int, bool]:
    """What stands before the block's end, where to go on, and whether the end is there."""
    over = _CALL_OVER.search(text, start)
    if over is None:
        return text[start:], len(text), False
    closed = over[0] == CLOSE
    return text[start : over.start()], over.end() if closed else over.start(), closed


def _without_end() -> BadCall:
    return BadCall(f"the tool call has no {CLOSE}")


def call_of(name: str, arguments: str) -> ToolCall | BadCall:
    """The call of that name with those arguments, JSON text of the model's."""
    try:
        value = decoded(arguments)
        if whole(name) != name:
            raise ValueError("the name has half of a surrogate pair")
    except (ValueError, RecursionError) as error:
        return BadCall(f"the arguments of {whole(name)} aren't valid JSON: {error}")
    return _checked({"name": name, "arguments": value})


def _checked(value: Any) -> ToolCall | BadCall:
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str) or not name:
        return BadCall('a tool call is a JSON object with "name" and "arguments"')
    arguments = value.get("arguments", {})
    if not isinstance(arguments, dict):
        return BadCall(f'"arguments" of {name} must be a JSON object')
    return ToolCall(name, arguments)


def _tagged_block(tools: Sequence[ToolSpec]) -> Callable[[str], Found]:
    schemas = {tool.name: tool.input_schema for tool in tools}

    def read(text: str) -> Found:
        if whole_block := _tagged.in_order(text, schemas):
            named, length = whole_block
        else:
            body, length, closed = _block_end(text, 0)
            if not closed:
                return [_without_end()], length
            named = _tagged.anywhere(body, schemas)
        if named:
            return [ToolCall(*one) for one in named], length
        why = "a tool call is written <function=NAME>…</function>, with a <parameter=NAME> each"
        return [BadCall(why)], length

    return read
