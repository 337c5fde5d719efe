"""Numbers that must divide another one, and those near it that do."""

from __future__ import annotations


def undivided(name: str, part: int, of: str, whole: int) -> str | None:
    """What is wrong with `part` where it must divide `whole`, and the nearest that it divides."""
    if not whole % part:
        return None
    below = whole - whole % part
    nearest = f"{below} or {below + part}" if below else f"{part}"
    return f"{name}: {part} doesn't divide {of}, {whole}; make that {nearest}"
