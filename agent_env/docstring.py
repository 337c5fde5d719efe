"""Google-style docstrings: the description and the text of each argument."""

from __future__ import annotations

import inspect
import re
from typing import NamedTuple

_SECTION = re.compile(r"^(Args|Arguments|Returns|Raises|Yields|Example|Examples|Note|Notes):\s*$")
_ARGUMENT = re.compile(r"^(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")


class Docstring(NamedTuple):
    """What a model is shown of a tool's docstring."""

    description: str
    arguments: dict[str, str]


def parse_docstring(text: str) -> Docstring:
    """Split a docstring into what stands above `Args:` and the lines below it."""
    description: list[str] = []
    arguments: list[str] = []
    section = ""
    for line in inspect.cleandoc(text).splitlines():
        heading = _SECTION.match(line)
        if heading:
            section = heading[1]
        elif not section:
            description.append(line)
        elif section in ("Args", "Arguments"):
            arguments.append(line)
    return Docstring("\n".join(description).strip(), _arguments(arguments))


def _arguments(lines: list[str]) -> dict[str, str]:
    """Argument name to text; a line indented deeper than the first goes on with the one above."""
    body = inspect.cleandoc("\n" + "\n".join(lines)).splitlines()
    described: dict[str, str] = {}
    name = ""
    for line in body:
        found = _ARGUMENT.match(line)
        if found:
            name = found[1]
            described[name] = found[2].strip()
        elif name and line.strip():
            described[name] = f"{described[name]} {line.strip()}".strip()
    return described
