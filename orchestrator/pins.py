"""Pins: named, hash-locked requirement files that a job's environment is made from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from functools import cache
from pathlib import Path

import yaml

from orchestrator.fields import Frozen

PINS_FOLDER = Path(__file__).resolve().parent.parent / "templates" / "pins"
SIZES = PINS_FOLDER / "sizes.json"


class PinEntry(Frozen):
    """One stack as `templates/pins/pins.yaml` lists it."""

    file: str
    gpu: bool
    python: str | None
    description: str
    sources: tuple[str, ...] = ()
    """Packages that are built where they are installed: the index has no wheel of them."""
    without: Mapping[str, str | None] = {}
    """Packages the stack asks for and the lock leaves out, each with what that costs a job."""


class PinSize(Frozen):
    """What a stack weighs on Linux x86_64, measured by `make pins SIZES=1`.

    For pins of any Python it is the heaviest: torch is its CUDA build wherever no CPU build is
    offered.
    """

    lock: str
    """SHA-256 of the lock that was measured."""
    wheels: int
    download_bytes: int
    """Of all files, as the index tells."""
    installed_bytes: int
    """Blocks on disk after an install."""

    @property
    def download_gb(self) -> Decimal:
        """Rounded up to tenths of 10⁹ bytes."""
        return _gb_up(self.download_bytes)

    @property
    def disk_gb(self) -> Decimal:
        """What an install takes at its worst: pip unpacks nothing until it has every wheel."""
        return _gb_up(self.download_bytes + self.installed_bytes)


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


@cache
def pin_sizes() -> Mapping[str, PinSize]:
    """What every stack weighs, by name."""
    listed = json.loads(SIZES.read_text("utf-8"))
    return {name: PinSize.model_validate(entry) for name, entry in listed.items()}


def room_gb(names: Iterable[str]) -> Decimal:
    """What the pins of those names take on a disk: the wheels, and what they unpack to."""
    return sum((pin_sizes()[name].disk_gb for name in set(names)), Decimal(0))


def pin_set(name: str) -> PinSet:
    """The pins of that name with the hash of their file.

    Raises KeyError for an unknown name, FileNotFoundError when the locked file isn't there.
    """
    entry = known_pins()[name]
    sha256 = hashlib.sha256((PINS_FOLDER / entry.file).read_bytes()).hexdigest()
    return PinSet(name=name, file=entry.file, sha256=sha256, gpu=entry.gpu, python=entry.python)


def _gb_up(size: int) -> Decimal:
    return (Decimal(size) / 10**9).quantize(Decimal("0.1"), ROUND_CEILING)
