"""What docs/bundles.md shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent_env.bundle import Bundle
from agent_env.bundles.inbox.frozen import SPLITS, stories
from agent_env.checking.finding import FIXES
from agent_env.cli import main
from agent_env.task import Task

from .page import BUNDLES, commands, files

HASH = re.compile(r"(?<=word_game )[0-9a-f]{8}(?= ·)")
"""Of the bundle's content: its starter may be improved."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where somebody follows the page."""
    for name, text in files(BUNDLES).items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_print_what_the_page_shows() -> None:
    shown = commands(BUNDLES)
    assert [command.split()[0] for command in shown] == ["new", "check", "eval"]
    for command, printed in shown.items():
        assert HASH.sub("…", CliRunner().invoke(main, command.split()).stdout) == HASH.sub(
            "…", printed
        )


def test_the_table_of_rules_is_the_checks() -> None:
    table = BUNDLES.read_text().split("| rule |")[1].split("\n\n")[0]
    rules = [rule for row in table.splitlines() for rule in re.findall(r"`([\w-]+)`", _head(row))]
    assert sorted(rules) == sorted(FIXES)


def _head(row: str) -> str:
    return row.split("|")[1] if row.startswith("| `") else ""


def test_what_the_page_says_can_be_written_is_there_to_be_overridden() -> None:
    parts = re.findall(r"`(Bundle|Task)\.(\w+)", BUNDLES.read_text())
    assert len(parts) > 8
    for owner, name in parts:
        kind = {"Bundle": Bundle, "Task": Task}[owner]
        assert hasattr(kind, name) or name in kind.__annotations__


def test_the_page_has_the_inboxs_kinds_and_sizes() -> None:
    text = BUNDLES.read_text()
    assert f"{SPLITS['train']} tasks to train on and {SPLITS['eval']} to evaluate" in text
    kinds = {story["kind"] for story in stories("eval")}
    assert all(f"| `{kind}` |" in text for kind in kinds)
