"""The README's tables come from the command."""

from __future__ import annotations

import pytest

from benchmarks.readme import replaced

PAGE = "before\n<!-- plan: make readme -->\nold\n<!-- /plan -->\nafter\n"


def test_a_block_is_replaced_and_nothing_around_it() -> None:
    changed = replaced(PAGE, "plan", r"new \1")
    assert (
        changed
        == "before\n<!-- plan: make readme -->\n```text\nnew \\1\n```\n<!-- /plan -->\nafter\n"
    )


def test_replacing_twice_leaves_one_block() -> None:
    assert replaced(replaced(PAGE, "plan", "a"), "plan", "b") == replaced(PAGE, "plan", "b")


def test_a_missing_block_is_an_error() -> None:
    with pytest.raises(ValueError, match="0 blocks named result"):
        replaced(PAGE, "result", "new")
