"""A config read, or refused with one line for each thing to mend."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from agent_env.errors import AgentEnvError

M = TypeVar("M", bound=BaseModel)


class ConfigError(AgentEnvError):
    """A job's config is wrong; `faults` has one line for each thing to mend."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


def parse_config(model: type[M], values: object) -> M:
    """`values` as that model. Raises ConfigError with one line per fault."""
    if not isinstance(values, dict):
        raise ConfigError([f"config: must be a mapping, not {type(values).__name__}"])
    try:
        return model.model_validate(values)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        raise ConfigError([_line(model, fault) for fault in faults]) from None


def _line(model: type[BaseModel], fault: Any) -> str:
    path = [str(part) for part in fault["loc"]]
    where = ".".join(["config", *path])
    if fault["type"] == "extra_forbidden":
        return f"{where}: unknown key{near(path[-1], _fields(model, path[:-1]))}"
    if fault["type"] == "value_error" and not path:
        return f"{where}.{fault['ctx']['error']}"
    said = fault.get("ctx", {}).get("error") or _lower_first(fault["msg"])
    return f"{where}: {said}, got {fault['input']!r}"


def _fields(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    for name in path:
        options = get_args(model.model_fields[name].annotation)
        model = next(kind for kind in options if isinstance(kind, type) and kind is not type(None))
    return list(model.model_fields)


def near(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
