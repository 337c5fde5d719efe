"""What docs/agent-env.md shows is what happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent_env.cli import main
from agent_env.client.local import LocalServer

from .page import SERVER, commands, files, snippets


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where somebody follows the page."""
    for name, text in files().items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def gridsim() -> Iterator[LocalServer]:
    with LocalServer("gridsim") as server:
        yield server


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("snippet", snippets(training=False))
def test_a_snippet_runs(snippet: str, gridsim: LocalServer) -> None:
    exec(compile(snippet.replace(SERVER, gridsim.url), "docs/agent-env.md", "exec"), {})


def test_every_snippet_is_run_somewhere() -> None:
    counts = [len(snippets(training=training)) for training in (False, True)]
    assert (counts, list(files())) == ([4, 1], ["doubling/__init__.py"])


def test_the_training_snippet_is_python() -> None:
    for snippet in snippets(training=True):
        compile(snippet, "docs/agent-env.md", "exec")


def test_the_command_prints_what_the_page_shows() -> None:
    shown = commands()
    assert CliRunner().invoke(main, ["tasks", "gridsim"]).output == shown["tasks gridsim"]
    assert SERVER in shown["serve gridsim --port 8000"]
