"""YAML in: plain data, the place of every field, and nothing a loader would let slip."""

from __future__ import annotations

import contextlib
import re

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.document import parse_document


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7e-4", 7e-4),
        ("5.0e-6", 5.0e-6),
        (".5", 0.5),
        ("-3", -3),
        ("007", 7),
        ("true", True),
        ("null", None),
        ("~", None),
        ("no", "no"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("2026-11-29", "2026-11-29"),
        ("'7'", "7"),
        ('"true"', "true"),
        ("g6e.4xlarge", "g6e.4xlarge"),
        ("1.2.3", "1.2.3"),
    ],
)
def test_a_plain_scalar_means_what_a_reader_would_say(text: str, value: object) -> None:
    document = parse_document(f"field: {text}\n")

    assert document.data == {"field": value}
    assert type(document.data["field"]) is type(value)
    assert document.faults == []


def test_every_field_knows_its_line_and_column() -> None:
    document = parse_document("a:\n  b: [1, {c: 2}]\n\nd: |\n  text\n")

    assert document.place(("a", "b", 1, "c")) == (2, 11)
    assert document.place(("a", "b", 0)) == (2, 7)
    assert document.place(("d",)) == (4, 1)


def test_a_field_that_is_missing_stands_where_its_neighbours_are() -> None:
    document = parse_document("a:\n  b: 1\n")

    assert document.place(("a", "missing", "deeper")) == (1, 1)


def test_a_key_given_twice_is_a_fault_at_the_second() -> None:
    document = parse_document("a: 1\nb: 2\na: 3\n")

    (fault,) = document.faults
    assert (fault.line, fault.column) == (3, 1)
    assert "twice" in fault.problem


def test_a_merge_key_is_only_a_key() -> None:
    assert parse_document("<<: 1\n").data == {"<<": 1}


class Writer(yaml.SafeDumper):
    """PyYAML's writer, which also quotes text that is a number in YAML 1.2 only."""


Writer.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+.0-9][-+.0-9eE]*$"), list("-+.0123456789")
)

DATA = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
NUMBERS_TO_SOME = ("1e5", "7e-4", "08", "+.5", "1.e5", "0x1F", "0o7", "1:30", "1_000", "=", "<<")


@given(DATA)
@example(["\x85", {"\x85": None}, "a\u2028 b", "\u2029", "\ufeff", "\x00\x7f\x9f", "\r\n\t"])
@example(list(NUMBERS_TO_SOME))
@example(dict.fromkeys(NUMBERS_TO_SOME))
def test_what_pyyaml_writes_is_read_back_as_it_was(data: object) -> None:
    text = yaml.dump(data, Dumper=Writer, sort_keys=False)

    assert repr(parse_document(text).data) == repr(data)


@given(DATA)
@example({"\x85": None})
@example(["a\x85b", "\x85\x85", "\x85\n", "a\u2028 b", "\u2029", "\ufeff"])
def test_what_pyyaml_writes_unescaped_is_read_as_pyyaml_reads_it(data: object) -> None:
    """Which isn't always what it was: it writes U+0085 as a line break, and then folds that."""
    text = yaml.dump(data, Dumper=Writer, allow_unicode=True, sort_keys=False)

    assert repr(parse_document(text).data) == repr(yaml.safe_load(text))


@given(st.text(max_size=200))
def test_no_text_does_worse_than_a_yaml_error(text: str) -> None:
    with contextlib.suppress(yaml.YAMLError):
        parse_document(text)
