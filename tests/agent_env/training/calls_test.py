"""What a model writes is read as calls and text, and no text breaks the reader."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env.errors import ToolError
from agent_env.training._calls import (
    BadCall,
    Form,
    Reply,
    ToolCall,
    call_of,
    form_of,
    read_reply,
)
from agent_env.training._functions import tool_text
from agent_env.types import ToolSpec

PLAN = ToolSpec(
    name="plan",
    description="Plan a day.",
    input_schema={
        "type": "object",
        "properties": {
            "hour": {"type": "integer"},
            "price": {"type": "number"},
            "sure": {"type": "boolean"},
            "note": {"type": "string"},
            "tag": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "steps": {"type": "array", "items": {"type": "integer"}},
            "mode": {"$ref": "#/$defs/Mode"},
            "level": {"enum": [1, 2, 3]},
        },
        "$defs": {"Mode": {"type": "object"}},
    },
)


def xml(**values: str) -> str:
    given = "".join(
        f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in values.items()
    )
    return f"<tool_call>\n<function=plan>\n{given}</function>\n</tool_call>"


def called(text: str, form: Form = "json") -> list[ToolCall | BadCall]:
    return list(read_reply(text, form, [PLAN]).calls)


def test_a_json_call_is_read_with_its_arguments() -> None:
    text = '<tool_call>\n{"name": "plan", "arguments": {"hour": 3}}\n</tool_call><|im_end|>'
    assert read_reply(text, "json") == Reply("", (ToolCall("plan", {"hour": 3}),))


def test_several_calls_keep_their_order_and_the_text_around_them() -> None:
    one, two = (f'<tool_call>{{"name": "{name}"}}</tool_call>' for name in ("a", "b"))
    reply = read_reply(f"First {one}\n{two} done.", "json")
    assert reply.calls == (ToolCall("a", {}), ToolCall("b", {}))
    assert reply.text == "First \n done."


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"name": "plan", "arguments": {', "isn't valid JSON"),
        ("plan(hour=3)", "isn't valid JSON"),
        ('{"name": "plan", "arguments": {"price": NaN}}', "NaN is no JSON"),
        ('{"name": "plan", "arguments": {"price": 1e999}}', "too large a number"),
        ('{"name": "plan", "arguments": [3]}', "must be a JSON object"),
        ('{"arguments": {}}', '"name" and "arguments"'),
        ("[" * 100_000, "isn't valid JSON"),
        ('{"name": "plan"} {"name": "plan"}', "one JSON object and nothing else"),
    ],
)
def test_a_call_that_cant_be_read_becomes_a_text_for_the_model(body: str, said: str) -> None:
    bad, good = called(f'<tool_call>{body}</tool_call><tool_call>{{"name": "b"}}</tool_call>')
    assert isinstance(bad, BadCall)
    assert said in bad.why
    assert good == ToolCall("b", {})


@pytest.mark.parametrize("form", ["json", "xml"])
def test_a_call_that_was_cut_off_is_not_carried_out(form: Form) -> None:
    (bad,) = called('<tool_call>{"name": "plan"}<function=plan></function>', form)
    assert bad == BadCall("the tool call has no </tool_call>")


def test_values_between_tags_are_typed_by_the_tools_schema() -> None:
    text = xml(
        hour="3", price="2.5", sure="True", note="7", tag="null", steps="[1, 2]", mode='{"a": 1}'
    )
    (call,) = called(text, "xml")
    assert call == ToolCall(
        "plan",
        {
            "hour": 3,
            "price": 2.5,
            "sure": True,
            "note": "7",
            "tag": None,
            "steps": [1, 2],
            "mode": {"a": 1},
        },
    )


def test_a_value_that_is_not_of_its_type_is_left_for_the_server_to_refuse() -> None:
    (call,) = called(xml(hour="three", price="1e999", level="2", other="9"), "xml")
    assert call == ToolCall("plan", {"hour": "three", "price": "1e999", "level": 2, "other": "9"})


def test_lines_inside_a_value_are_its_own() -> None:
    (call,) = called(xml(note="one\n\n  two\n"), "xml")
    assert call == ToolCall("plan", {"note": "one\n\n  two\n"})


def test_a_block_without_a_function_is_a_bad_call() -> None:
    (bad,) = called("<tool_call>plan now</tool_call>", "xml")
    assert isinstance(bad, BadCall)


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("<think>5 or 6?</think>\n\n6<|im_end|>", Reply("6")),
        ("5 or 6?</think>6", Reply("6")),
        ("<think>5 or", Reply("", in_thought=True)),
        ('<think><tool_call>{"name": "a"}</tool_call></think>no', Reply("no")),
        ("<think></think>" * 5000 + "yes<|endoftext|>no", Reply("yes")),
    ],
)
def test_thinking_is_neither_said_nor_done(text: str, reply: Reply) -> None:
    assert read_reply(text, "json") == reply


def test_the_chat_template_tells_the_form() -> None:
    assert form_of("{{ '<tool_call>' }}{{ '<function=' + name }}") == "xml"
    assert form_of('<tool_call>\n{"name": …') == "json"
    assert form_of("{{ messages }}") is None
    assert form_of("<tool_call>add\n<arg_key>n</arg_key>") is None


MARKS = (
    "<tool_call> </tool_call> <think> </think> <function=plan> </function> <parameter=hour> "
    '</parameter> <|im_end|> {"name":"plan" } [ 1e999 -Infinity \\ud800 "arguments":{'
)
PARTS = st.sampled_from([*MARKS.split(), "\n"])


@given(
    st.lists(st.one_of(PARTS, st.text(max_size=9))).map("".join), st.sampled_from(["json", "xml"])
)
def test_no_text_breaks_the_reader(text: str, form: Form) -> None:
    reply = read_reply(text, form, [PLAN])
    for call in reply.calls:
        if isinstance(call, ToolCall):
            assert call.name
            json.dumps(call.arguments, allow_nan=False)


@pytest.mark.parametrize(
    "body",
    [
        r'{"name": "\ud800"}',
        r'{"name": "plan", "arguments": {"note": "\ud83d"}}',
        r'{"name": "plan", "arguments": {"\udfff": [1]}}',
    ],
)
def test_half_a_character_is_the_models_own_fault(body: str) -> None:
    (call,) = called(f"<tool_call>{body}</tool_call>")
    assert isinstance(call, BadCall)
    call.why.encode()
    assert "half of a surrogate pair" in call.why
    pair = '<tool_call>{"name": "plan", "arguments": {"note": "\\ud83d\\ude42"}}</tool_call>'
    assert called(pair) == [ToolCall("plan", {"note": "🙂"})]


@pytest.mark.parametrize(
    "arguments", ["{", "[1]", '{"n": NaN}', r'{"n": "\ud800"}', "[" * 100_000, '{"n": 1e999}']
)
def test_arguments_that_another_parser_found_are_held_to_the_same(arguments: str) -> None:
    assert isinstance(call_of("plan", arguments), BadCall)
    assert call_of("plan", '{"n": 1}') == ToolCall("plan", {"n": 1})


def test_a_tools_text_is_one_that_every_tokenizer_takes() -> None:
    assert tool_text({"result": {"data": "half \ud83d, whole 🙂"}}) == "half ?, whole 🙂"
    with pytest.raises(ToolError, match=r"no tool '\?'"):
        tool_text({"error": {"message": "no tool '\udfff'"}})
