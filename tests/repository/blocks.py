"""The fenced blocks of the README and of docs/: each is run, checked, or says what it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .tree import ROOT, kept_files

PYTHON = "python"
CONSOLE = "console"
SHELL = frozenset({"sh", CONSOLE})
DATA = frozenset({"yaml", "json", "jsonl", "toml"})
SHOWN = "text"
"""What something prints, or a drawing: nothing to type."""
KINDS = {PYTHON, *SHELL, *DATA, SHOWN}

NEEDS = {
    "gpu": "needs an NVIDIA GPU",
    "cloud": "needs a cloud account",
    "trl": "runs in .venv-train",
    "verl": "runs in .venv-ray",
    "skyrl": "runs in .venv-ray",
    "other": "is read by a program that isn't ours",
}
"""What may stand behind the kind, and what it says of the block."""
NEVER_RUN = frozenset({"gpu", "cloud"})

FENCE = re.compile(r"^ *(```+)(.*)$")
FILE = re.compile(r"# (\S+\.py)\n")


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is its fence's, counted from 1."""

    page: str
    line: int
    info: str
    text: str

    @property
    def kind(self) -> str:
        return self.info.split()[0] if self.info else ""

    @property
    def marks(self) -> frozenset[str]:
        return frozenset(self.info.split()[1:])

    @property
    def file(self) -> str | None:
        """The file it is to be saved as, if its first line says so."""
        named = FILE.match(self.text)
        return named[1] if named and self.kind == PYTHON else None

    @property
    def at_its_line(self) -> str:
        """The text with so many lines above it that a traceback has the page's numbers."""
        return "\n" * self.line + self.text

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """The README and every page of docs/."""
    docs = ROOT / "docs"
    return [
        path
        for path in sorted(kept_files())
        if path.suffix == ".md" and (path == ROOT / "README.md" or docs in path.parents)
    ]


def blocks() -> list[Block]:
    """Every block, page by page, from above to below."""
    return [
        block
        for page in pages()
        for block in read(page.read_text("utf-8"), str(page.relative_to(ROOT)))
    ]


def read(text: str, page: str) -> Iterator[Block]:
    """The blocks of one page. Raises ValueError for a fence that nothing closes."""
    opened: tuple[int, str, str] | None = None
    inside: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if opened is None and fence:
            opened, inside = (number, fence[1], fence[2].strip()), []
        elif opened and fence and fence[1] == opened[1] and not fence[2].strip():
            yield Block(page, opened[0], opened[2], "".join(each + "\n" for each in inside))
            opened = None
        else:
            inside.append(line)
    if opened:
        raise ValueError(f"{page}:{opened[0]}: nothing closes this block")
