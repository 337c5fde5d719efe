"""Pins: named, hash-locked requirement files that a job's environment is made from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path

import yaml

from orchestrator.fields import Frozen

PINS_FOLDER = Path(__file__).resolve().parent.parent / "templates" / "pins"


class PinEntry(Frozen):
    """One stack as `templates/pins/pins.yaml` lists it."""

    file: str
    gpu: bool
    python: str | None
    wheels_gb: Decimal
    """What its wheels weigh, at the most on any Python; a box needs twice that."""
    description: str


class PinSet(Frozen):
    """Pins as a plan records them; the file is `<PINS_FOLDER>/<file>`."""

    name: str
    file: str
    sha256: str
    gpu: bool
    """Whether the bootstrap must find a GPU and its driver before it installs."""
    python: str | None
    """`3.12`, or None where any Python of the box will do."""


@cache
def known_pins() -> Mapping[str, PinEntry]:
    """Every stack in `pins.yaml`, by name."""
    listed = yaml.safe_load((PINS_FOLDER / "pins.yaml").read_text("utf-8"))
    return {name: PinEntry.model_validate(entry) for name, entry in listed.items()}


def room_gb(names: Iterable[str]) -> Decimal:
    """What the pins of those names take on a disk: the wheels, and what they unpack to."""
    return sum((2 * known_pins()[name].wheels_gb for name in set(names)), Decimal(0))


def pin_set(name: str) -> PinSet:
    """The pins of that name with the hash of their file.

    Raises KeyError for an unknown name, FileNotFoundError when the locked file isn't there.
    """
    entry = known_pins()[name]
    sha256 = hashlib.sha256((PINS_FOLDER / entry.file).read_bytes()).hexdigest()
    return PinSet(name=name, file=entry.file, sha256=sha256, gpu=entry.gpu, python=entry.python)
