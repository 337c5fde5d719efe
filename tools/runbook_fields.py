"""Writes the field tables of docs/runbooks.md from the models' own descriptions.

.venv/bin/python tools/runbook_fields.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from orchestrator.duration import format_duration
from orchestrator.spec import (
    BoxSpec,
    JobInput,
    JobSpec,
    RangeSpec,
    ReferenceSpec,
    RunbookSpec,
)

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "runbooks.md"
START, END = "<!-- fields: made by tools/runbook_fields.py -->\n", "<!-- end of fields -->\n"
TABLES: tuple[tuple[str, type[BaseModel]], ...] = (
    ("The runbook", RunbookSpec),
    ("A box, under `boxes:` by its name", BoxSpec),
    ("A job, under `jobs:` by its name", JobSpec),
    ("An input, under a job's `inputs:` by the name the job knows it under", JobInput),
    ("A range, under a job's `expect:` by the metric's name", RangeSpec),
    ("A reference, under a job's `reference:` by the metric's name", ReferenceSpec),
)


def main() -> None:
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text("utf-8")), "utf-8")


def with_tables(text: str) -> str:
    """The document with its tables made anew."""
    before, rest = text.split(START)
    _, after = rest.split(END)
    return before + START + "\n".join(_tables()) + "\n" + END + after


def _tables() -> Iterator[str]:
    for title, model in TABLES:
        yield f"\n### {title}\n\n| field | default | meaning |\n|---|---|---|"
        for name, field in model.model_fields.items():
            yield f"| `{name}` | {_default(field)} | {field.description} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    match value:
        case None | "" | ():
            return "–"
        case {}:
            return "–" if not value else f"`{json.dumps(value)}`"
        case timedelta():
            return f"`{format_duration(value)}`"
        case tuple():
            return f"`{json.dumps(list(value))}`"
        case Decimal() | int() | str():
            return f"`{value}`"
    raise TypeError(f"no words for {value!r}")


if __name__ == "__main__":
    main()
