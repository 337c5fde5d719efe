"""EC2's filters: values are alternatives, filters are all to hold, `*` and `?` are wildcards."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from tests.faults.cloud.refusal import Refused
from tests.faults.cloud.things import Thing

T = TypeVar("T", bound=Thing)


def matching(things: Iterable[T], filters: Iterable[Any]) -> list[T]:
    """Those that pass every filter; refuses a filter of an unknown name as EC2 does."""
    wanted = [(f["Name"], f["Values"]) for f in filters]
    return [thing for thing in things if all(_passes(thing, n, v) for n, v in wanted)]


def is_like(value: str, patterns: Iterable[str]) -> bool:
    for pattern in patterns:
        if value == pattern:
            return True
        if ("*" in pattern or "?" in pattern) and fnmatchcase(value, pattern.replace("[", "[[]")):
            return True
    return False


def _passes(thing: Thing, name: str, patterns: Iterable[str]) -> bool:
    if name.startswith("tag:"):
        value = thing.tags.get(name[4:])
        return value is not None and is_like(value, patterns)
    if name == "tag-key":
        return any(is_like(key, patterns) for key in thing.tags)
    values = thing.values(name)
    if values is None:
        raise Refused("InvalidParameterValue", f"The filter '{name}' is invalid")
    return any(is_like(value, patterns) for value in values)
