"""What docs/agent-env.md says that the command prints is what it prints."""

from __future__ import annotations

from typer.testing import CliRunner

from agent_env.cli import main

from .page import SERVER, commands


def test_the_command_prints_what_the_page_shows() -> None:
    shown = commands()
    assert CliRunner().invoke(main, ["tasks", "gridsim"]).output == shown["tasks gridsim"]
    assert SERVER in shown["serve gridsim --port 8000"]
