"""What is imported is declared, and what is declared is imported."""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import packages_distributions

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .tree import ROOT

# Their packages are installed only where something trains.
TRAINING = {"torch", "transformers", "trl", "tokenizers", "datasets", "accelerate", "unsloth"}
RAY = {"ray", "skyrl", "skyrl_gym", "torchdata", "verl"}
# Part of a declared package, or found under it: boto3's core, fabric's runner, pydantic's core.
PARTS = {"botocore", "invoke", "pydantic-core", "werkzeug"}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(
        "orchestrator", "agent_env", include_external_packages=True, cache_dir=None
    )


def declared(*extras: str) -> set[str]:
    """Names of the project's dependencies and of the given extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"]]
    lines += [line for extra in extras for line in project["optional-dependencies"][extra]]
    return {canonicalize_name(Requirement(line).name) for line in lines}


def imported(graph: grimp.ImportGraph) -> set[str]:
    """Distributions that the packages import, stubs and the training stack aside."""
    known = packages_distributions()
    tops = {module for module in graph.modules if graph.is_module_squashed(module)}
    outside = {top for top in tops if top not in sys.stdlib_module_names | TRAINING | RAY}
    found = {canonicalize_name(name) for top in outside for name in known.get(top, [top])}
    return {name for name in found if not name.startswith("mypy-boto3")}


def test_whatever_is_imported_is_declared(graph: grimp.ImportGraph) -> None:
    assert imported(graph) - declared("local", "dev", "openenv") - PARTS - {"numpy"} == set()


def test_whatever_everyone_has_to_install_is_imported(graph: grimp.ImportGraph) -> None:
    assert declared("local") - imported(graph) == set()
