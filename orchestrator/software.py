"""Whether a job's pins have the packages that its program and its settings need."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from orchestrator.faults import Fault
from orchestrator.pins import PINS_FOLDER, known_pins
from orchestrator.spec import NO_PINS, JobSpec, RunbookSpec


def unpinned(
    name: str, job: JobSpec, spec: RunbookSpec, packages: Mapping[str, list[str]]
) -> Iterator[Fault]:
    """A fault for each setting whose packages the job's pins lack; `packages` is by setting.

    Nothing of pins that don't exist or have no lock, which are another check's business.
    """
    pins = spec.pins_of(job)
    if pins is not None and not (pins in known_pins() and packages_of(pins)):
        return
    for setting, needed in packages.items():
        fitting = [one for one in known_pins() if packages_of(one) >= set(needed)]
        if pins in fitting:
            continue
        what = f"{job.program} needs" if setting == "program" else "needs"
        yield Fault(
            ("jobs", name, *setting.split(".")),
            f"{what} pins {_either(fitting)}, the job has {pins or NO_PINS}",
            f"Set {_either([f'`pins: {one}`' for one in fitting])}.",
        )


@cache
def packages_of(pins: str) -> frozenset[str]:
    """The packages in a lock; none where there is no lock. Raises KeyError for unknown pins."""
    try:
        text = (PINS_FOLDER / known_pins()[pins].file).read_text("utf-8")
    except OSError:
        return frozenset()
    return frozenset(re.findall(r"^([a-z0-9._-]+)==", text, re.MULTILINE))


def _either(names: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
