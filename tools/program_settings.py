"""Writes the tables of docs/programs.md from the programs' own config models.

.venv/bin/python -m tools.program_settings
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from agent_env.training.config import (
    CONFIGS,
    LoraConfig,
    ProgramConfig,
    UnslothConfig,
    VllmConfig,
)

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "programs.md"
START, END = (
    "<!-- settings: made by tools/program_settings.py -->\n",
    "<!-- end of settings -->\n",
)
SECTIONS: dict[str, type[BaseModel]] = {
    "Under `lora`": LoraConfig,
    "Under `unsloth`": UnslothConfig,
    "Under `vllm`": VllmConfig,
}


def main() -> None:
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text("utf-8")), "utf-8")


def with_tables(text: str) -> str:
    """The document with its tables made anew."""
    before, rest = text.split(START)
    _, after = rest.split(END)
    return before + START + "\n".join(_tables()) + "\n" + END + after


def meaning(model: type[BaseModel], name: str) -> str:
    """The setting's description, from the nearest class that has one, and its choices."""
    known = [base.model_fields.get(name) for base in model.__mro__ if issubclass(base, BaseModel)]
    said = next(field.description for field in known if field and field.description)
    choices = _choices(model.model_fields[name].annotation)
    listed = f" One of {', '.join(f'`{choice}`' for choice in choices)}." if choices else ""
    # In a runbook None is a setting that isn't there.
    return re.sub(r"\bNone\b", "left out", " ".join(said.split())) + listed


def _tables() -> Iterator[str]:
    yield from _table("Every program", ProgramConfig, list(ProgramConfig.model_fields))
    for title, section in SECTIONS.items():
        yield from _table(title, section, list(section.model_fields))
    for program, config in CONFIGS.items():
        yield from _table(f"`{program}`", config, _own(config))


def _own(config: type[ProgramConfig]) -> list[str]:
    """The settings that the program adds, or whose default is another than every program's."""
    every = ProgramConfig.model_fields
    return [
        name
        for name, field in config.model_fields.items()
        if name not in every or field.default != every[name].default
    ]


def _table(title: str, model: type[BaseModel], names: list[str]) -> Iterator[str]:
    yield f"\n### {title}\n\n{inspect.getdoc(model)}\n"
    yield "| setting | default | meaning |\n|---|---|---|"
    for name in names:
        yield f"| `{name}` | {_default(model.model_fields[name])} | {meaning(model, name)} |"


def _default(field: FieldInfo) -> str:
    match field.default:
        case None | ():
            return "–"
        case str() as word:
            return f"`{word}`"
        case bool() | int() | float() as value:
            return f"`{json.dumps(value)}`"
    raise TypeError(f"no words for {field.default!r}")


def _choices(annotation: Any) -> tuple[Any, ...]:
    """The words of a Literal, alone or in a union or a tuple."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return next(filter(None, map(_choices, get_args(annotation))), ())


if __name__ == "__main__":
    main()
