"""A local cloud of its own, and desks: folders from which a person types `gpurun`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.pulled import PULLED

SECONDS = 300
WHEELS = Path(__file__).resolve().parents[3] / ".wheels"
TRAINER = Path(__file__).with_name("trainer.py")
DIES_AT = Path(__file__).with_name("dies_at.py")


@dataclass(frozen=True)
class Desk:
    """A working folder; what it shares with other desks is the account, nothing else."""

    folder: Path
    env: dict[str, str]

    def gpurun(self, *args: str | Path, code: int = 0, stdin: str = "") -> str:
        """Run the command as a person does; its standard output."""
        return self._run([sys.executable, "-m", "orchestrator.cli", *map(str, args)], code, stdin)

    def dying_at(self, point: str, *args: str | Path) -> str:
        """The same command, its process ended by SIGKILL at `point`."""
        return self._run([sys.executable, str(DIES_AT), point, *map(str, args)], -9)

    def json(self, *args: str | Path) -> Any:
        return json.loads(self.gpurun(*args, "--json"))

    def write_runbook(self, text: str, name: str = "own") -> Path:
        """A runbook whose job's `workdir` holds the stand-in trainer."""
        work = self.folder / "project"
        work.mkdir(exist_ok=True)
        (work / "trainer.py").write_text(TRAINER.read_text())
        path = self.folder / f"{name}.yaml"
        path.write_text(text)
        return path

    def _run(self, argv: list[str], code: int, stdin: str = "") -> str:
        done = subprocess.run(
            argv,
            cwd=self.folder,
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == code, (
            f"{argv} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done.stdout


@pytest.fixture(scope="session")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment that leads to one local cloud, which ends with the tests."""
    home = tmp_path_factory.mktemp("account")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "GPURUN_"))}
    env |= {"GPURUN_HOME": str(home), "GPURUN_WHEELS": str(WHEELS)}
    start = [sys.executable, "-m", "orchestrator.cli", "cloud", "start"]
    subprocess.run(start, env=env, check=True, timeout=60)
    yield env
    stop = [sys.executable, "-m", "orchestrator.cli", "cloud", "stop", "--yes"]
    subprocess.run(stop, env=env, check=True, timeout=60)


@pytest.fixture
def desk(account: dict[str, str], tmp_path: Path) -> Desk:
    folder = tmp_path / "desk"
    folder.mkdir()
    return Desk(folder, account)


@pytest.fixture
def other_desk(account: dict[str, str], tmp_path: Path) -> Desk:
    """An empty folder elsewhere: knows the account, and whatever run id it is told."""
    folder = tmp_path / "other"
    folder.mkdir()
    return Desk(folder, account)


def run_id_in(output: str) -> str:
    """The run id that `gpurun up` printed."""
    found = re.search(r"run (\S+) is on record", output)
    assert found, output
    return found[1]


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below the folder but the report page, and what pulls keep a list in."""
    own = ("report.html", PULLED)
    files = (p for p in folder.rglob("*") if p.is_file() and p.name not in own)
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}
