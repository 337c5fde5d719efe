"""The versions of trainers that we know, asked of the installed packages without an import.

The pins are among them, and the upper ends are theirs: a test holds this table to the locks and
to Unsloth's own caps.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata

Version = tuple[int, ...]


@dataclass(frozen=True)
class Supported:
    """Versions from `least` on and before `below`; `pin` is the one of our own stacks."""

    least: str
    below: str
    pin: str

    def holds(self, version: str) -> bool:
        """Whether the version is in the range; what comes before a release counts as it."""
        return numbers(self.least) <= numbers(version) < numbers(self.below)


SUPPORTED: Mapping[str, Supported] = {
    "trl": Supported("1.15", "1.17", "1.16.0"),
    "transformers": Supported("5.13", "5.18", "5.17.0"),
    "vllm": Supported("0.22", "0.32", "0.29.0"),
    "unsloth": Supported("2026.10", "2026.11", "2026.10.9"),
    "peft": Supported("0.18", "0.22", "0.21.2"),
    "bitsandbytes": Supported("0.48.1", "0.51", "0.50.2"),
}
UNDER_UNSLOTH: Mapping[str, Supported] = {
    "trl": Supported("1.15", "1.15.1", "1.15.0"),
    "transformers": Supported("5.13", "5.17.1", "5.17.0"),
}
ON_CPU: Mapping[str, Supported] = {"trl": Supported("1.16", "1.17", "1.16.0")}
"""TRL 1.15 needs triton, which is there only with a GPU."""
_IN_CPU_PINS = frozenset({"trl", "transformers"})


def version_faults(packages: Iterable[str], *, cuda: bool) -> Iterator[str]:
    """A sentence for each package that is missing or of another version, with the command.

    TRL and transformers are looked at in any case, before those of `packages`.
    """
    wanted = dict.fromkeys(("trl", "transformers", *packages))
    narrower, besides = _situation("unsloth" in wanted, cuda)
    pins = _pins(wanted, cuda)
    for name in wanted:
        supported = narrower.get(name, SUPPORTED[name])
        version = installed(name)
        if version is not None and supported.holds(version):
            continue
        found = "isn't installed" if version is None else f"{version} is installed"
        where = besides if name in narrower else ""
        yield (
            f"{name}: {found}, supported{where} is >={supported.least},<{supported.below}:"
            f" pip install '{name}=={supported.pin}', or on a box `pins: {pins}`"
        )


def _situation(unsloth: bool, cuda: bool) -> tuple[Mapping[str, Supported], str]:
    """The ranges that are narrower than usual, and how to call that."""
    if unsloth:
        return UNDER_UNSLOTH, " with unsloth"
    return ({}, "") if cuda else (ON_CPU, " without a GPU")


def _pins(wanted: Collection[str], cuda: bool) -> str:
    """Those that have all of it."""
    if "unsloth" in wanted:
        return "unsloth"
    return "trl" if cuda or not _IN_CPU_PINS.issuperset(wanted) else "cpu"


def installed(name: str) -> str | None:
    """The version that an import would find, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def numbers(version: str) -> Version:
    """The numbers of a release: 1.16.0rc1+cu130 is (1, 16, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
