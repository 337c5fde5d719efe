"""Locks hold versions and hashes, nothing of the machine or the index that made them."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .tree import ROOT

PINS = ROOT / "templates" / "pins"
LOCKS = sorted([*(ROOT / "requirements").glob("*.txt"), *PINS.glob("*.txt")])
NAMED = re.compile(r"^[a-z0-9][a-z0-9.-]*==[^\s;]+( ; [^\\]+)? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


def requirements(lock: Path) -> list[Requirement]:
    """The requirements of a lock, their hashes aside."""
    lines = lock.read_text().splitlines()
    return [Requirement(line.rstrip("\\").strip()) for line in lines if "==" in line]


def versions(lock: Path) -> defaultdict[str, list[str]]:
    """Every version that a lock holds of a name, whatever the markers."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for requirement in requirements(lock):
        found[canonicalize_name(requirement.name)].append(str(requirement.specifier)[2:])
    return found


def names(lock: Path, **environment: str) -> set[str]:
    """Names that a lock installs on Linux x86_64 under the given markers."""
    linux = {"sys_platform": "linux", "platform_machine": "x86_64", **environment}
    kept = (r for r in requirements(lock) if r.marker is None or r.marker.evaluate(linux))
    return {canonicalize_name(requirement.name) for requirement in kept}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_a_lock_holds_nothing_but_versions_and_hashes(lock: Path) -> None:
    lines = lock.read_text().splitlines()
    assert [line for line in lines if not NAMED.match(line) and not HASH.match(line)] == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_every_version_in_a_lock_has_a_hash(lock: Path) -> None:
    lines = [*lock.read_text().splitlines(), ""]
    bare = [line for line, after in pairwise(lines) if NAMED.match(line) and not HASH.match(after)]
    assert bare == []


@pytest.mark.parametrize("asked", sorted(PINS.glob("*.in")), ids=lambda path: path.stem)
def test_a_pin_set_locks_what_it_asks_for(asked: Path) -> None:
    lines = (line.split("#")[0].strip() for line in asked.read_text().splitlines())
    locked = versions(asked.with_suffix(".txt"))
    for wanted in (Requirement(line) for line in lines if line):
        found = locked[canonicalize_name(wanted.name)]
        assert any(wanted.specifier.contains(version) for version in found), str(wanted)


def test_the_gpu_extra_names_the_versions_of_the_unsloth_pins() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = map(Requirement, project["optional-dependencies"]["gpu"])
    named = {wanted.name: [str(wanted.specifier)[2:]] for wanted in extra}
    stack = {"unsloth", "trl", "transformers", "vllm", "vllm-bnb-plugin", "bitsandbytes"}
    assert named.keys() == stack
    locked = versions(PINS / "unsloth.txt")
    assert named == {name: locked[name] for name in named}


def test_the_tests_that_train_run_at_unsloths_ceiling() -> None:
    # Unsloth ends at transformers 5.17 and TRL 1.15, which can't train on a CPU; 1.16 can.
    locked = versions(PINS / "cpu.txt")
    assert [version[:5] for version in locked["trl"]] == ["1.16."]
    assert [version[:5] for version in locked["transformers"]] == ["5.17."]
    makefile = (ROOT / "Makefile").read_text()
    recipe = re.search(r"^\.venv-train/\.installed:(.*\n(\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe is not None
    assert "--require-hashes -r templates/pins/cpu.txt" in recipe[1]


def test_every_stack_is_locked_at_one_transformers_and_one_torch() -> None:
    # Three trainers that can't share an environment: each lock is of its own.
    found = {pin: versions(PINS / f"{pin}.txt") for pin in ("unsloth", "trl", "verl", "skyrl")}
    assert {pin: locked["transformers"] for pin, locked in found.items()} == {
        "unsloth": ["5.17.0"],
        "trl": ["5.17.0"],
        "verl": ["5.9.0"],
        "skyrl": ["5.8.0"],
    }
    assert found["unsloth"]["vllm"] == found["trl"]["vllm"]
    assert found["unsloth"]["torch"] == found["trl"]["torch"] == ["2.13.0"]
    assert found["verl"]["hydra-core"][0].startswith("1.3.")


def test_the_lock_for_people_satisfies_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    locked = versions(ROOT / "requirements" / "dev.txt")
    for wanted in map(Requirement, [*project["dependencies"], *extras["local"], *extras["dev"]]):
        found = locked[canonicalize_name(wanted.name)]
        fits = [wanted.specifier.contains(version) for version in found]
        assert fits.count(True) == len(found) > 0, f"{wanted} is locked at {found}"


def test_a_persons_environment_brings_no_torch() -> None:
    heavy = {"torch", "trl", "transformers", "unsloth", "vllm", "triton"}
    assert names(ROOT / "requirements" / "dev.txt", python_full_version="3.13.0") & heavy == set()


def test_the_cpu_pins_need_nothing_of_cuda_where_the_cpu_wheel_is() -> None:
    found = names(PINS / "cpu.txt", python_full_version="3.11.7", python_version="3.11")
    assert "torch" in found
    assert {name for name in found if name.startswith(("nvidia-", "cuda-", "triton"))} == set()
