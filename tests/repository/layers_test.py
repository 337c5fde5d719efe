"""The import contracts hold, and each of them would notice."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .tree import ROOT

PACKAGES = ("orchestrator", "agent_env")

# contract, the file that breaks it, the line that does
BROKEN = [
    ("apart", "orchestrator/plan.py", "import agent_env.types"),
    ("orchestrator-layers", "orchestrator/money.py", "import orchestrator.plan"),
    ("orchestrator-layers", "orchestrator/unplaced.py", ""),
    ("no-cycles", "orchestrator/duration.py", "import orchestrator.fields"),
    ("agent-env-layers", "agent_env/client/env.py", "import agent_env.server.app"),
    ("agent-env-layers", "agent_env/unplaced.py", ""),
    ("local-cloud-apart", "orchestrator/localcloud/strict.py", "import orchestrator.runner"),
    ("box-alone", "orchestrator/box/decide.py", "import pydantic"),
    ("client-light", "agent_env/client/env.py", "import torch"),
    ("boto3-wall", "orchestrator/plan.py", "import boto3"),
    ("ssh-wall", "orchestrator/runner.py", "import fabric"),
    ("jinja2-wall", "orchestrator/report.py", "import jinja2"),
    ("rich-wall", "orchestrator/plan.py", "import rich"),
    ("typer-wall", "orchestrator/plan.py", "import typer"),
    ("moto-wall", "orchestrator/aws/session.py", "import moto"),
    ("openenv-wall", "agent_env/client/env.py", "import openenv"),
]


def lint(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the import contracts over the packages in a folder."""
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-logo", "--no-cache"]
    return subprocess.run([*command, *arguments], cwd=root, capture_output=True, text=True)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The packages' Python files and their contracts, to be broken."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "*.json", "*.gz")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    return tmp_path


def test_every_import_keeps_its_contract() -> None:
    checked = lint(ROOT)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("contract, file, line", BROKEN)
def test_a_contract_notices_what_breaks_it(
    copy: Path, contract: str, file: str, line: str
) -> None:
    with (copy / file).open("a") as module:
        module.write(f"\n{line}\n")
    checked = lint(copy, "--contract", contract)
    assert checked.returncode == 1, checked.stdout
    assert "1 broken" in checked.stdout
