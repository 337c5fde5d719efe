"""One name, or several in a list: `bundle: gridsim`, `bundle: [gridsim, inbox]`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator


def _checked(value: Any) -> str | tuple[str, ...]:
    several = list(value) if isinstance(value, list | tuple) else [value]
    if not several or not all(isinstance(name, str) and name for name in several):
        raise ValueError("must be a name or a list of names")
    return value if isinstance(value, str) else tuple(several)


Names = Annotated[str | tuple[str, ...], BeforeValidator(_checked)]


def listed(names: str | tuple[str, ...]) -> tuple[str, ...]:
    """The names as a tuple, also where there is only one."""
    return (names,) if isinstance(names, str) else names
