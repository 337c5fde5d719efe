"""A secret's value doesn't leave the box in a text: as it is, coded, cut in two, or in a file."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote_plus

import pytest

from orchestrator.box import redact
from orchestrator.box.redact import Redactor

VALUE = 'hf_aaB+7/z"Q~é9\\xK'
MARK = b"***HF_TOKEN***"


@pytest.fixture
def redactor() -> Redactor:
    redactor = Redactor()
    redactor.learn({"HF_TOKEN": VALUE, "WANDB": "w" * 40})
    return redactor


def test_one_that_knows_nothing_changes_nothing(tmp_path: Path) -> None:
    text = tmp_path / "log.txt"
    text.write_bytes(b"x" * 9)
    assert Redactor().clean(b"anything") == b"anything"
    assert Redactor().publish(text, 9, tmp_path / "copy", ends=False) == (text, 9)


@pytest.mark.parametrize(
    "written",
    [
        VALUE.encode(),
        json.dumps(VALUE)[1:-1].encode(),
        json.dumps(VALUE, ensure_ascii=False)[1:-1].encode(),
        quote_plus(VALUE).encode(),
        quote_plus(VALUE).lower().replace("hf_aab", "hf_aaB").encode(),
    ],
)
def test_a_value_is_found_however_it_is_written(redactor: Redactor, written: bytes) -> None:
    if b"%" in written:  # the last one: only the digits after % change their case
        written = written.replace(b"q", b"Q").replace(b"xk", b"xK")
    assert redactor.clean(b"token=" + written + b"&") == b"token=" + MARK + b"&"


@pytest.mark.parametrize("user", ["", "u", "us", "user:", "x:y:z"])
@pytest.mark.parametrize("code", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_value_is_found_in_base64_wherever_it_begins(
    redactor: Redactor, user: str, code: type[bytes]
) -> None:
    coded = code((user + VALUE + " and more").encode())
    assert redactor.name_in(coded) == "HF_TOKEN"
    assert MARK in redactor.clean(coded)


def test_a_short_value_is_left_alone_as_it_would_spoil_every_text() -> None:
    redactor = Redactor()
    redactor.learn({"PIN": "1234567"})
    assert redactor.clean(b"1234567") == b"1234567"


def test_names_and_values_at_any_depth_are_cleaned(redactor: Redactor) -> None:
    said = {"a": [VALUE, {VALUE: 1.5}], "b": None, "c": f"<{VALUE}>"}
    mark = MARK.decode()
    assert redactor.value(said) == {"a": [mark, {mark: 1.5}], "b": None, "c": f"<{mark}>"}


@pytest.mark.parametrize("cut", range(1, len(VALUE.encode())))
def test_of_a_growing_text_no_part_of_a_value_is_published_before_the_rest_is_there(
    redactor: Redactor, tmp_path: Path, cut: int
) -> None:
    log, copy = tmp_path / "log.txt", tmp_path / "copy"
    log.write_bytes(b"step 1\n" + VALUE.encode() + b"\nstep 2\n")
    path, size = redactor.publish(log, len(b"step 1\n") + cut, copy, ends=False)
    assert path.read_bytes()[:size] == b"step 1\n"
    path, size = redactor.publish(log, log.stat().st_size, copy, ends=False)
    assert path.read_bytes()[:size] == b"step 1\n" + MARK + b"\nstep 2\n"


@pytest.mark.parametrize("block", range(1, 50, 3))
def test_a_value_that_is_read_in_pieces_is_still_one(
    redactor: Redactor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(redact, "BLOCK", block)
    log, value = tmp_path / "log.txt", VALUE.encode()
    log.write_bytes(b"a" + value + value + b"hf_aaB" + b"w" * 85 + b"end")
    path, size = redactor.publish(log, log.stat().st_size, tmp_path / "copy", ends=True)
    wanted = b"a" + MARK + MARK + b"hf_aaB" + b"***WANDB***" * 2 + b"wwwwwend"
    assert path.read_bytes()[:size] == wanted
    assert redactor.read(log, log.stat().st_size, len)[1] is not None


def test_a_value_that_overlaps_itself_isnt_torn(tmp_path: Path) -> None:
    redactor = Redactor()
    redactor.learn({"T": "abcabcabc"})
    log = tmp_path / "log.txt"
    log.write_bytes(b"xabcabcabc")
    path, size = redactor.publish(log, 10, tmp_path / "copy", ends=False)
    assert path.read_bytes()[:size] == b"x"
    assert redactor.clean(log.read_bytes()) == b"x***T***"


def test_the_end_that_was_cut_off_is_marked_if_it_is_most_of_a_value(
    redactor: Redactor, tmp_path: Path
) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"said " + VALUE.encode()[:9])
    path, size = redactor.publish(log, log.stat().st_size, tmp_path / "copy", ends=True)
    assert path.read_bytes()[:size] == b"said " + MARK
    log.write_bytes(b"said hf_")
    assert redactor.publish(log, 8, tmp_path / "copy", ends=True) == (log, 8)


def test_of_a_text_that_is_cut_off_at_its_start_the_end_of_a_value_is_dropped(
    redactor: Redactor,
) -> None:
    assert redactor.clean(VALUE.encode()[5:] + b" said", begins=False) == b" said"
    assert redactor.clean(b"nothing", begins=False) == b"nothing"


def test_a_growing_file_is_clear_up_to_what_may_become_a_value(
    redactor: Redactor, tmp_path: Path
) -> None:
    table = tmp_path / "table.log"
    table.write_bytes(b"x" * 1000 + VALUE.encode()[:7])
    assert redactor.clear_size(table, 1007) == 1000


def test_what_is_hashed_is_what_was_searched(redactor: Redactor, tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"x" * 10)
    seen: list[bytes] = []
    assert redactor.read(file, 12, seen.append) == (10, None)
    assert b"".join(seen) == b"x" * 10
