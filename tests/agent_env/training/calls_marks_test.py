"""A mark of thinking, of a call or of the turn's end is text where a call's string holds it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_env.training._calls import BadCall, Form, Reply, ToolCall, read_reply
from tests.agent_env.training.calls_test import PARTS, PLAN, called, xml

QUOTED = ["<tool_call>", "</tool_call>", "<think>", "</think>", "<|im_end|>", "<|endoftext|>"]


@pytest.mark.parametrize("mark", QUOTED)
def test_a_mark_inside_a_string_of_a_json_call_is_text(mark: str) -> None:
    note = f"a {mark} b"
    call = f"<tool_call>{json.dumps({'name': 'plan', 'arguments': {'note': note}})}</tool_call>"
    said = f"<think>5?</think>Now {call} then {call}<|im_end|>{call}"
    assert read_reply(said, "json") == Reply("Now  then", (ToolCall("plan", {"note": note}),) * 2)


@pytest.mark.parametrize("mark", [*QUOTED[1:], "</function>"])
def test_a_mark_inside_a_value_between_tags_is_text(mark: str) -> None:
    call = xml(note=f"a {mark} b", hour="3")
    wanted = ToolCall("plan", {"note": f"a {mark} b", "hour": 3})
    assert read_reply(f"Now {call}<|im_end|>", "xml", [PLAN]) == Reply("Now", (wanted,))


def test_a_value_without_its_end_takes_no_other_call_with_it() -> None:
    cut = "<tool_call><function=plan><parameter=note>a</function></tool_call>"
    assert called(cut + xml(hour="3"), "xml") == [
        ToolCall("plan", {}),
        ToolCall("plan", {"hour": 3}),
    ]


@pytest.mark.parametrize("form", ["json", "xml"])
@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("<tool_call>{ <think>no</think> six<|im_end|>", "six"),
        ("I may say <tool_call>{oh}</think>six", "six"),
        ('It says <tool_call>{"name": "a"}</tool_call> or</think>six', "six"),
    ],
)
def test_a_mark_ends_a_call_that_cant_be_read_and_thinking_holds_none(
    text: str, reply: str, form: Form
) -> None:
    read = read_reply(text, form)
    assert read.text == reply
    assert [type(call) for call in read.calls] == [BadCall] * text.startswith("<tool_call>")


SMALL = settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
TEXT = st.one_of(
    PARTS, st.text(max_size=9), st.tuples(st.text(max_size=3), PARTS, PARTS).map("".join)
)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        TEXT,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(TEXT, inner, max_size=2)),
    max_leaves=4,
)


@SMALL
@given(
    st.lists(st.tuples(TEXT.filter(bool), st.dictionaries(TEXT, VALUES, max_size=3)), max_size=3)
)
def test_what_was_written_as_json_is_what_is_called(
    calls: list[tuple[str, dict[str, Any]]],
) -> None:
    blocks = [json.dumps({"name": name, "arguments": given}) for name, given in calls]
    text = "".join(f"<tool_call>\n{block}\n</tool_call>" for block in blocks)
    assert called(text) == [ToolCall(*call) for call in calls]


# What has one of these is read as a value that lacks its own end.
PLAIN = TEXT.filter(lambda text: not re.search("</parameter>|<(parameter|function)=|<tool_", text))


@SMALL
@given(st.lists(PLAIN, max_size=4))
def test_what_was_written_between_tags_is_what_is_called(notes: list[str]) -> None:
    text = "".join(xml(note=note) for note in notes)
    assert called(text, "xml") == [ToolCall("plan", {"note": note}) for note in notes]
