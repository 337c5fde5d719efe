"""What docs/eval.md shows is what happens, from its first block to its last."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent_env.cli import main
from agent_env.cli.evaluate import INCOMPLETE, INTERRUPTED

PAGE = Path(__file__).parents[3] / "docs" / "eval.md"

_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CHANGES = re.compile(r"gridsim [0-9a-f]{8}|\d+\.\d s$", re.MULTILINE)
"""The bundle's hash, and what a clock says."""


def plain(text: str) -> str:
    return _CHANGES.sub("…", text)


def typed(block: str) -> list[tuple[list[str], str]]:
    """Each command of a block with what is shown below it."""
    parts = (part.partition("\n") for part in block.split("$ agent-env ")[1:])
    return [(command.split(), shown) for command, _, shown in parts]


@pytest.mark.slow
def test_the_page_can_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    followed = 0
    for language, block in _BLOCK.findall(PAGE.read_text()):
        if language == "console":
            for command, shown in typed(block):
                done = CliRunner().invoke(main, command)
                assert (done.exit_code, plain(done.stdout)) == (0, plain(shown)), done.stderr
                followed += 1
        elif name := re.match(r"# (\w+\.py)\n", block):
            Path(name[1]).write_text(block)
        else:
            exec(compile(block, "docs/eval.md", "exec"), {})
    sys.modules.pop("evenings", None)
    assert followed == 6


def test_the_pages_exit_codes_are_the_commands() -> None:
    told = re.findall(r"^\| (\d+) \| ", PAGE.read_text(), re.MULTILINE)
    assert [int(code) for code in told] == [0, INCOMPLETE, 2, INTERRUPTED]


def test_the_pages_policies_and_options_are_the_commands() -> None:
    helped = CliRunner().invoke(main, ["eval", "--help"]).output
    page = PAGE.read_text()
    said = set(re.findall(r"`(--[a-z-]+)", page)) - {"--max-sessions", "--min-reward"}
    assert {option for option in said if option not in helped} == set()
    for form in ("expert", "random:SEED", "scripted:MODULE:FUNCTION", "openai:MODEL"):
        assert f"| `{form}` |" in page
