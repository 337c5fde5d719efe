"""A page's Python, run from above to below in one folder, as somebody would who follows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner

from agent_env.cli import main
from agent_env.client.local import LocalServer

from .blocks import CONSOLE, NEVER_RUN, PYTHON, Block, blocks

SERVER = "http://127.0.0.1:8000"
"""What a page says `agent-env serve gridsim` prints; here it is a server of the test's own."""

RUN_BY = {"docs/eval.md": "tests/agent_env/evaluation/page_test.py"}
"""Pages with a test of their own, because their Python needs what their commands wrote."""


def followed(mark: str | None) -> dict[str, list[Block]]:
    """The pages with Python that runs in the environment of `mark`, and all that leads to it."""
    kinds = (PYTHON, CONSOLE)
    found = [block for block in blocks() if block.kind in kinds and block.page not in RUN_BY]
    named = {block.page for block in found if runs_here(block, mark)}
    return {page: [block for block in found if block.page == page] for page in sorted(named)}


def runs_here(block: Block, mark: str | None) -> bool:
    """Whether the block is to be executed in that environment; None is the main one."""
    if block.kind != PYTHON or block.file or block.marks & NEVER_RUN:
        return False
    return block.marks == (frozenset({mark}) if mark else frozenset())


def follow(page: list[Block], mark: str | None, folder: Path, edit: Callable[[str], str]) -> int:
    """Save the files and execute the rest, edited; returns how many were executed."""
    executed = 0
    with _server(page) as url:
        for block in page:
            if block.kind == CONSOLE:
                _make_bundles(block)
            elif block.file:
                (folder / block.file).parent.mkdir(exist_ok=True)
                (folder / block.file).write_text(block.text)
            elif runs_here(block, mark):
                text = edit(block.at_its_line).replace(SERVER, url)
                exec(compile(text, block.page, "exec"), {"__name__": "__main__"})
                executed += 1
    return executed


def _make_bundles(block: Block) -> None:
    """The folders that `agent-env new` makes; other commands are the tests' of their pages."""
    for name in re.findall(r"^\$ agent-env new (\w+)$", block.text, re.MULTILINE):
        assert CliRunner().invoke(main, ["new", name]).exit_code == 0


def shortened(text: str, model: Path) -> str:
    """A training of one step of few words, of a model that is small enough; else as printed."""
    text = re.sub(r'"(?:Qwen|unsloth)/[\w.-]+"', f'"{model}"', text)
    text = re.sub(r"max_steps=\d+", "max_steps=1", text)
    return re.sub(r"max_completion_length=\d+", "max_completion_length=16", text)


@contextmanager
def _server(page: list[Block]) -> Iterator[str]:
    if not any(SERVER in block.text for block in page):
        yield SERVER
        return
    with LocalServer("gridsim") as server:
        yield server.url
