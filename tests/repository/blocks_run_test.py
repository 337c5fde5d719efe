"""The Python of the README and of docs/ does what the page says; its asserts are the page's."""

from __future__ import annotations

from pathlib import Path

import pytest

from .blocks import read
from .following import RUN_BY, follow, followed
from .tree import ROOT

PAGES = followed(None)


@pytest.mark.parametrize("page", PAGES)
def test_the_page_can_be_followed(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert follow(PAGES[page], None, tmp_path, str)


@pytest.mark.parametrize(("page", "test"), RUN_BY.items())
def test_a_page_that_is_run_elsewhere_is(page: str, test: str) -> None:
    assert Path(page).name in (ROOT / test).read_text("utf-8")


def test_a_wrong_line_is_told_by_page_and_line(tmp_path: Path) -> None:
    page = list(read("one\n```python\nx = 1\nassert x == 2\n```\n", "docs/page.md"))
    with pytest.raises(AssertionError) as raised:
        follow(page, None, tmp_path, str)
    assert (str(raised.traceback[-1].path), raised.traceback[-1].lineno) == ("docs/page.md", 3)


def test_only_what_runs_here_is_run(tmp_path: Path) -> None:
    text = "".join(f"```python{mark}\nraise SystemExit\n```\n" for mark in (" trl", " gpu"))
    text += "```python\n# made.py\nraise SystemExit\n```\n"
    assert follow(list(read(text, "docs/page.md")), None, tmp_path, str) == 0
    assert (tmp_path / "made.py").is_file()
