"""The Python of docs/ that imports verl or SkyRL, run where both are."""

from __future__ import annotations

from pathlib import Path

import pytest

from .blocks import Block
from .following import follow, followed

pytestmark = [
    pytest.mark.verl,
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore"),
]

PAGES = [(mark, name, page) for mark in ("verl", "skyrl") for name, page in followed(mark).items()]


@pytest.mark.parametrize(("mark", "name", "page"), PAGES, ids=str)
def test_the_page_can_be_followed(
    mark: str, name: str, page: list[Block], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert follow(page, mark, tmp_path, str), name
