"""The Makefile is how everything is started: what it runs, and what it refuses."""

from __future__ import annotations

import os
import subprocess

from .surface import targets
from .tree import ROOT

RUN = {"gpu-proof", "pull", "sweep", "clean"}
DEVELOP = {"help", "setup", "fmt", "lint", "types", "test", "check", "bench"}


def dry(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What make would run, with everything that it depends on already made."""
    environment = {key: value for key, value in os.environ.items() if key not in ("CAP", "CLOUD")}
    command = ["make", "--dry-run", "--always-make", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_make_help_lists_the_targets_that_people_rely_on() -> None:
    assert (RUN | DEVELOP) - targets() == set()


def test_the_main_job_runs_the_rehearsal_on_the_local_cloud() -> None:
    planned = dry("gpu-proof").stdout
    assert ".venv/bin/gpurun up runbooks/rehearsal.yaml --cloud local --yes" in planned


def test_the_main_job_on_aws_takes_its_cap_and_asks_first() -> None:
    planned = dry("gpu-proof", "CLOUD=aws", "CAP=40").stdout
    assert ".venv/bin/gpurun up runbooks/gpu-proof.yaml --cloud aws --cap 40\n" in planned
    assert "--yes" not in planned


def test_aws_without_a_cap_is_refused() -> None:
    command = ["make", "gpu-proof", "CLOUD=aws", "--assume-old=.venv/.installed"]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert refused.returncode != 0
    assert "CAP=40" in refused.stderr


def test_a_sweep_ends_things_only_when_told_to() -> None:
    assert dry("sweep", "YES=").stdout.endswith("gpurun sweep --cloud local\n")
    assert dry("sweep", "YES=1").stdout.endswith("gpurun sweep --cloud local --yes\n")


def test_all_tests_are_those_that_train_too() -> None:
    planned = dry("test").stdout
    assert '.venv-train/bin/python -m pytest -m "trl and not aws and not gpu"' in planned


def test_pins_are_only_written_when_told_to() -> None:
    assert dry("pins", "WRITE=").stdout.rstrip().endswith("-m tools.pins")
    assert dry("pins", "PINS=trl", "WRITE=1").stdout.rstrip().endswith("-m tools.pins trl --write")


def test_ci_runs_the_checks_and_the_tests() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert {"make check", "make test"} <= set(script.read_text().splitlines())
