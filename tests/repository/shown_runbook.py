"""YAML on a page: a runbook, or a part of one that is put where it belongs, and planned."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from orchestrator.catalog import load_catalog
from orchestrator.errors import GpurunError
from orchestrator.plan import make_plan
from orchestrator.programs import PROGRAMS
from orchestrator.runbook import load_runbook
from orchestrator.spec import JobSpec, RunbookSpec

from .tree import ROOT

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


def fault(text: str, folder: Path) -> str | None:
    """Why no runbook with this in it can be planned; None when one can."""
    values = yaml.safe_load(text)
    if not isinstance(values, dict):
        return "is no mapping"
    if not (folder / "examples").exists():
        shutil.copytree(ROOT / "runbooks" / "examples", folder / "examples")
        shutil.copytree(ROOT / "agent_env" / "starter" / "example", folder / "mine" / "word_game")
    faults = []
    for runbook in _whole(values):
        if (found := _planned(runbook, folder)) is None:
            return None
        faults.append(found)
    return "; or: ".join(faults)


def _whole(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The runbooks that the text may be part of: itself, its fields, a job's, a config's."""
    job: dict[str, Any] = {"box": "one", "hours": "10m"}
    first = {**job, "program": "sft"}
    then = {**job, "inputs": {"model": {"job": "first", "path": "out/model"}}}
    around = {
        "name": "shown",
        "cap_usd": 40,
        "regions": ["us-east-1"],
        "pins": "unsloth",
        "boxes": {"one": {"instance": "g6.4xlarge", "hours": 6}},
        "jobs": {"first": first},
    }
    if values.keys() <= RunbookSpec.model_fields.keys():
        return [around | values]
    if values.keys() <= JobSpec.model_fields.keys():
        return [around | {"jobs": {"first": first, "then": then | values}}]
    return [
        around | {"jobs": {"first": first, "then": {**then, "program": program, "config": values}}}
        for program in PROGRAMS
    ]


def _planned(values: dict[str, Any], folder: Path) -> str | None:
    path = folder / "shown.yaml"
    path.write_text(yaml.safe_dump(values))
    try:
        make_plan(load_runbook(path), now=NOW, catalog=load_catalog(), cloud="local")
    except GpurunError as error:
        return str(error)
    return None
