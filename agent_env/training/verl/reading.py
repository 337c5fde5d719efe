"""What the model's tokens mean: calls, text, thought; and how they are told to its template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_env.training._calls import (
    BadCall,
    Form,
    Reply,
    ToolCall,
    call_of,
    read_reply,
)
from agent_env.training._strict_json import whole
from agent_env.types import ToolSpec

FORMS: dict[str, Form] = {"hermes": "json", "qwen3_coder": "xml"}
"""Formats that verl's own parsers read by leaving out in silence what they can't read."""

Message = dict[str, Any]


class Reader:
    """Reads replies in one of verl's formats, `multi_turn.format`."""

    def __init__(self, format_: str, tokenizer: Any, parser: Any) -> None:
        self._form = FORMS.get(format_)
        self._tokenizer = tokenizer
        self._parser = parser
        self.stops: list[int] = parser.stop_token_ids
        """Tokens after which a model of that format would go on without waiting for the reply."""

    async def read(self, ids: Sequence[int], tools: Sequence[ToolSpec]) -> Reply:
        """The reply in these tokens."""
        if self._form is not None:
            return read_reply(self._tokenizer.decode(ids), self._form, tools)
        try:
            text, found = await self._parser.extract_tool_calls(list(ids), None)
            calls = tuple(call_of(one.name, one.arguments) for one in found)
        except Exception as error:
            # The model's fault, as any call that can't be read: the rollout isn't lost by it.
            text, calls = "", (BadCall(f"the tool call can't be read: {error}"),)
        for mark in self._tokenizer.all_special_tokens:
            text = text.replace(mark, "")
        return Reply(whole(text).strip(), calls)


def said(reply: Reply) -> Message:
    """The reply as a message; the tokens of it are the model's own, whatever a template makes."""
    message: Message = {"role": "assistant", "content": reply.text}
    calls = [call for call in reply.calls if isinstance(call, ToolCall)]
    if calls:
        message["tool_calls"] = [
            {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    return message


def answered(call: ToolCall | BadCall, text: str) -> Message:
    """A tool's text as a message."""
    named = {"name": call.name} if isinstance(call, ToolCall) else {}
    return {"role": "tool", "content": text} | named
