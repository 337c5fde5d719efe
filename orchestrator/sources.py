"""The files a runbook names on this machine: pins, workdirs, requirements.

Read once, when the runbook loads; from then on the plan knows their hashes and sizes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from orchestrator.faults import Fault
from orchestrator.fields import Frozen
from orchestrator.locks import unlocked_lines
from orchestrator.pins import PINS_FOLDER, PinSet, known_pins, pin_set
from orchestrator.spec import RunbookSpec
from orchestrator.workdir import MAX_BYTES, WorkdirError, list_workdir, size_of


class Workdir(Frozen):
    """A job's folder; `bytes` before compression, git-ignored files left out."""

    path: str
    bytes: int
    files: int


class Requirements(Frozen):
    """A job's own hash-locked requirements file."""

    path: str
    sha256: str


class Sources(Frozen):
    """Everything outside the YAML that the boxes will need. Paths are absolute."""

    pins: Mapping[str, PinSet]
    workdirs: Mapping[str, Workdir]
    """By job."""
    requirements: Mapping[str, Requirements]
    """By job."""
    models_here: Mapping[str, str] = {}
    """By job, the folder here that has its model's name, which no box has."""


def gather(spec: RunbookSpec, folder: Path) -> tuple[Sources, list[Fault]]:
    """The sources of a runbook in `folder`, and what is wrong with them."""
    faults: list[Fault] = []
    top = _top(folder)
    workdirs = {
        name: found
        for name, job in spec.jobs.items()
        if job.workdir and (found := _workdir(name, job.workdir, folder, top, faults))
    }
    requirements = {
        name: locked
        for name, job in spec.jobs.items()
        if job.requirements and (locked := _locked(name, job.requirements, folder, top, faults))
    }
    here = {
        name: str(path)
        for name, job in spec.jobs.items()
        if (path := _model_here(job.config.get("model"), folder))
    }
    return Sources(
        pins=_pins(spec, faults),
        workdirs=workdirs,
        requirements=requirements,
        models_here=here,
    ), faults


def _model_here(model: object, folder: Path) -> Path | None:
    """The folder of that name beside the runbook, or where the command was typed."""
    if not isinstance(model, str) or "/" not in model:  # one word is a word of the program's
        return None
    places = (folder / model, Path(model))
    try:
        return next((place.absolute() for place in places if place.is_dir()), None)
    except OSError:  # no path can be so long, or a folder on the way isn't for this user
        return None


def _top(folder: Path) -> Path:
    """The git work tree around the runbook, or its own folder: nothing outside may be named."""
    home = folder.resolve()
    return next((path for path in (home, *home.parents) if (path / ".git").exists()), home)


def _inside(path: Path, top: Path) -> Fault | None:
    if path.is_relative_to(top):
        return None
    fix = f"Keep it below {top}, or keep the runbook in a folder above it."
    return Fault((), f"{path} is outside the runbook's own tree", fix)


def _workdir(name: str, text: str, folder: Path, top: Path, faults: list[Fault]) -> Workdir | None:
    here, path = ("jobs", name, "workdir"), (folder / text).resolve()
    if fault := _inside(path, top):
        faults.append(Fault(here, fault.problem, fault.fix))
        return None
    if not path.is_dir():
        faults.append(Fault(here, f"no folder {text!r}", f"Looked for {path}."))
        return None
    try:
        files = list_workdir(path)
    except (WorkdirError, OSError) as error:
        faults.append(Fault(here, f"{text!r} can't be packed: {error}", "Mend or ignore it."))
        return None
    size = size_of(path, files)
    if not files or size > MAX_BYTES:
        problem = f"{text!r} has {len(files)} files to send, {size:,} bytes in all"
        faults.append(Fault(here, problem, "Check what .gitignore leaves in."))
        return None
    return Workdir(path=str(path), bytes=size, files=len(files))


def _locked(
    name: str, text: str, folder: Path, top: Path, faults: list[Fault]
) -> Requirements | None:
    here, path = ("jobs", name, "requirements"), (folder / text).resolve()
    if fault := _inside(path, top):
        faults.append(Fault(here, fault.problem, fault.fix))
        return None
    try:
        content = path.read_bytes()
    except OSError as error:
        faults.append(
            Fault(here, f"{text!r} can't be read: {error.strerror}", f"Looked for {path}.")
        )
        return None
    wrong = list(unlocked_lines(content.decode("utf-8", errors="replace")))
    if wrong:
        number, problem = wrong[0]
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        fix = "Lock it: `uv pip compile --generate-hashes --no-header`."
        faults.append(
            Fault(here, f"{text} isn't hash-locked: line {number}, {problem}{more}", fix)
        )
        return None
    return Requirements(path=str(path), sha256=hashlib.sha256(content).hexdigest())


def _pins(spec: RunbookSpec, faults: list[Fault]) -> dict[str, PinSet]:
    """The pins that jobs use; unknown names are another check's business."""
    found: dict[str, PinSet] = {}
    for name, job in spec.jobs.items():
        pins = spec.pins_of(job)
        if pins is None or pins in found or pins not in known_pins():
            continue
        try:
            found[pins] = pin_set(pins)
        except OSError:
            missing = PINS_FOLDER / known_pins()[pins].file
            path = ("jobs", name, "pins") if job.pins else ("pins",)
            faults.append(Fault(path, f"the lock of {pins} is missing", f"Looked for {missing}."))
    return found
