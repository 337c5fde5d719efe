"""The fenced blocks of a page of docs, as somebody would type them in."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "agent-env.md"
BUNDLES = DOCS / "bundles.md"
SERVER = "http://127.0.0.1:8000"
"""The address that the page's `agent-env serve` prints."""

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\S+\.py)\n")


def blocks(language: str, page: Path = PAGE) -> list[str]:
    """Every block of that language, in order."""
    return [text for kind, text in _BLOCK.findall(page.read_text()) if kind == language]


def files(page: Path = PAGE) -> dict[str, str]:
    """The Python blocks that begin with a file's name, by it."""
    named = [(_FILE.match(text), text) for text in blocks("python", page)]
    return {name[1]: text for name, text in named if name}


def snippets(page: Path = PAGE, *, training: bool) -> list[str]:
    """The Python blocks to be run: those that need a trainer, or those that don't."""
    found = [text for text in blocks("python", page) if not _FILE.match(text)]
    return [text for text in found if ("import GRPO" in text) == training]


def commands(page: Path = PAGE) -> dict[str, str]:
    """What follows `$ agent-env` by what it prints."""
    typed = "".join(blocks("console", page)).split("$ agent-env ")[1:]
    parts = (block.partition("\n") for block in typed)
    return {command: printed for command, _, printed in parts}
