"""What the pages on environments show, by name; their Python runs in tests/repository."""

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


def files(page: Path = PAGE) -> dict[str, str]:
    """The Python blocks that begin with a file's name, by it."""
    named = [(_FILE.match(text), text) for text in _blocks("python", page)]
    return {name[1]: text for name, text in named if name}


def commands(page: Path = PAGE) -> dict[str, str]:
    """What follows `$ agent-env` by what it prints."""
    typed = "".join(_blocks("console", page)).split("$ agent-env ")[1:]
    parts = (block.partition("\n") for block in typed)
    return {command: printed for command, _, printed in parts}


def _blocks(language: str, page: Path) -> list[str]:
    return [text for kind, text in _BLOCK.findall(page.read_text()) if kind == language]
