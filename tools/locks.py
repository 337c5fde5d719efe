"""What two hash-locked requirements files install differently, on Linux x86_64.

Markers that say the same in other words are no difference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Locked(NamedTuple):
    """One package: its exact version, and the SHA-256 of each file that may be taken."""

    version: str
    files: frozenset[str]


def locked_for(text: str, python: str) -> dict[str, Locked]:
    """What a lock installs with that Python, `3.12`, by canonical name."""
    place = {
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "python_version": python,
        "python_full_version": f"{python}.0",
    }
    found: dict[str, Locked] = {}
    for line in text.replace("\\\n", " ").splitlines():
        if not line or line.startswith("#"):
            continue
        asked = Requirement(line.partition(" --hash")[0].strip())
        if asked.marker is None or asked.marker.evaluate(place):
            files = frozenset(_HASH.findall(line))
            found[canonicalize_name(asked.name)] = Locked(str(asked.specifier)[2:], files)
    return found


def lock_changes(old: str, new: str, pythons: Sequence[str]) -> list[str]:
    """A line for every package that differs, each once; sorted."""
    lines = {
        f"{name}: {change}"
        for python in pythons
        for name, change in _changes(locked_for(old, python), locked_for(new, python)).items()
    }
    return sorted(lines)


def _changes(old: Mapping[str, Locked], new: Mapping[str, Locked]) -> dict[str, str]:
    return {
        name: _change(old.get(name), new.get(name))
        for name in old.keys() | new.keys()
        if old.get(name) != new.get(name)
    }


def _change(old: Locked | None, new: Locked | None) -> str:
    if old and new and old.version == new.version:
        more, fewer = len(new.files - old.files), len(old.files - new.files)
        return f"{old.version}: {more} files more, {fewer} fewer"
    return f"{old.version if old else 'not there'} -> {new.version if new else 'gone'}"
