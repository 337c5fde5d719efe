"""Requirements are hash-locked or refused, line by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.locks import unlocked_lines
from orchestrator.pins import PINS_FOLDER

HASH = "--hash=sha256:" + "a" * 64


@pytest.mark.parametrize(
    "text",
    [
        f"torch==2.13.0 {HASH}\n",
        f"torch==2.13.0 \\\n    {HASH} \\\n    {HASH}\n    # via trl\n",
        f"uvicorn[standard]==0.54.0 ; sys_platform == 'linux' {HASH}\n",
        f"# only\n\n  # comments\nx==1 {HASH}",
        "",
    ],
)
def test_exact_and_hashed_lines_pass(text: str) -> None:
    assert list(unlocked_lines(text)) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("torch==2.13.0\n", 1),
        (f"\n\ntorch>=2 {HASH}\n", 3),
        (f"x==1 {HASH}\ntorch==2.13.0 \\\n    --hash=md5:abc\n", 2),
        (f"--find-links /tmp\nx==1 {HASH}\n", 1),
        (f"-e . {HASH}\n", 1),
        (f"pkg @ file:///x.whl {HASH}\n", 1),
    ],
)
def test_anything_else_is_named_by_its_line(text: str, line: int) -> None:
    assert [number for number, _ in unlocked_lines(text)] == [line]


@pytest.mark.parametrize("path", sorted(PINS_FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_our_own_pins_are_hash_locked(path: Path) -> None:
    assert list(unlocked_lines(path.read_text("utf-8"))) == []
