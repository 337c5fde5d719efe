"""A runbook as loaded from its file: checked through and through, with everything it names.

`load_runbook` either returns something that can be planned, or one error that lists every fault
with its line.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from orchestrator.catalog import load_catalog
from orchestrator.checks import check_spec
from orchestrator.document import Document, read_document
from orchestrator.faults import Fault, did_you_mean, runbook_error
from orchestrator.faults import Path as Field
from orchestrator.fields import RULE
from orchestrator.pins import known_pins
from orchestrator.placement import place
from orchestrator.programs import PROGRAMS, ConfigCheck
from orchestrator.sources import Sources, gather
from orchestrator.spec import (
    BoxSpec,
    JobInput,
    JobSpec,
    RangeSpec,
    ReferenceSpec,
    RunbookSpec,
)

_WORDS = {
    "string_type": "text; put it into quotes",
    "int_type": "a whole number",
    "tuple_type": "a list",
    "mapping_type": "a mapping",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "finite_number": "a finite number",
}
"""What pydantic calls by its Python name."""


class Runbook(RunbookSpec):
    """What the file says, and the files it names."""

    sources: Sources


def load_runbook(path: Path) -> Runbook:
    """The runbook in the YAML file at `path`.

    Raises RunbookError listing every fault with file, line, column, field and fix. Reads the
    catalog, the pins and the jobs' folders; asks the programs about their configs; creates and
    sends nothing.
    """
    document = read_document(path)
    spec, faults = _spec(document)
    faults = [*document.faults, *faults]
    if spec is not None:
        asked = ConfigCheck(spec)
        spec, wrong = _checked(spec)
        faults += wrong
        sources, missing = gather(spec, path.parent)
        faults += [*missing, *asked.faults()]
        if not faults:
            return Runbook(**dict(spec), sources=sources)
    raise runbook_error(str(path), [document.located(fault) for fault in faults])


def _checked(spec: RunbookSpec) -> tuple[RunbookSpec, list[Fault]]:
    """Its jobs each with a box if nothing is wrong with it, and what is."""
    how: Any = {"catalog": load_catalog(), "pins": known_pins(), "programs": PROGRAMS}
    if faults := check_spec(spec, **how):
        return spec, faults
    placed, late = place(spec, load_catalog())
    return placed, late or (check_spec(placed, **how) if placed is not spec else [])


def _spec(document: Document) -> tuple[RunbookSpec | None, list[Fault]]:
    if document.data is None:
        return None, [Fault((), "an empty runbook", "Start from runbooks/smoke.yaml.")]
    if not isinstance(document.data, dict):
        problem = f"a runbook is a mapping, this is a {type(document.data).__name__}"
        return None, [Fault((), problem, "Start from runbooks/smoke.yaml.")]
    try:
        return RunbookSpec.model_validate(document.data), []
    except ValidationError as error:
        details = error.errors(include_url=False)
        return _without_unknown(document.data, details), [
            _fault(one) for one in _distinct(details)
        ]


def _distinct(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Without 'too short', which pydantic also says of a list whose only item is wrong."""
    wrong = [one["loc"] for one in details]
    return [
        one
        for one in details
        if one["type"] != "too_short" or not any(_within(loc, one["loc"]) for loc in wrong)
    ]


def _within(inner: Field, outer: Field) -> bool:
    return len(inner) > len(outer) and inner[: len(outer)] == outer


def _without_unknown(data: object, details: list[ErrorDetails]) -> RunbookSpec | None:
    """The runbook without its unknown keys, so that the other checks can still have their say."""
    if any(one["type"] != "extra_forbidden" for one in details):
        return None
    known = copy.deepcopy(data)
    for one in details:
        holder: Any = known
        for part in one["loc"][:-1]:
            holder = holder[part]
        del holder[one["loc"][-1]]
    try:
        return RunbookSpec.model_validate(known)
    except ValidationError:
        return None


def _fault(details: ErrorDetails) -> Fault:
    path: Field = tuple(part for part in details["loc"] if part != "[key]")
    context = details.get("ctx", {})
    match details["type"]:
        case _ if details["type"] == RULE:
            return Fault(path, context["problem"], context["fix"])
        case "extra_forbidden":
            fix = did_you_mean(str(path[-1]), _model_at(path[:-1]).model_fields)
            return Fault(path, f"unknown key {path[-1]!r}", fix)
        case "missing":
            return Fault(path, "is missing", f"Give it. {_description(path)}")
    said = _WORDS.get(details["type"]) or details["msg"].removeprefix("Input should be ")
    return Fault(path, f"{_short(details['input'])} isn't {said}", _description(path))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _model_at(path: Field) -> type[BaseModel]:
    match path:
        case ("boxes", _):
            return BoxSpec
        case ("jobs", _):
            return JobSpec
        case ("jobs", _, "inputs", _):
            return JobInput
        case ("jobs", _, "expect", _):
            return RangeSpec
        case ("jobs", _, "reference", _):
            return ReferenceSpec
    return RunbookSpec


def _description(path: Field) -> str:
    """The documentation of the innermost field on the path that has one."""
    for end in range(len(path), 0, -1):
        field = _model_at(path[: end - 1]).model_fields.get(str(path[end - 1]))
        if field and field.description:
            return field.description
    return "See docs/runbooks.md."
