"""canonical/cloud-init#2908, danvk/mapsnap PR#443, unattended-upgrades#90: dpkg's lock at boot.

There: a fresh machine's own upgrades hold dpkg's lock when the boot script wants to install. The
script gives up after its retries, and the machine ends without having done a thing.
Here: nothing that runs on a box asks for a package of the system; its own upgrades are switched
off right after the power-off is armed, without waiting for them; and a box on which every such
command hangs does its job to the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.incidents.desks import cloud, rig, shared_cloud
from tests.orchestrator.box.rig import Rig, until
from tests.orchestrator.box.user_data_test import Machine
from tests.orchestrator.render_test import CASES, render

__all__ = ["cloud", "rig", "shared_cloud"]

BOX = Path(__file__).parents[2] / "orchestrator" / "box"
INSTALLERS = ("apt", "apt-get", "aptitude", "dpkg", "dnf", "yum", "snap")
ASKS = re.compile(rf"""(^|[\s;&|("'])({"|".join(INSTALLERS)})(?=[\s"',]|$)""")


def asks(text: str) -> list[str]:
    """Its lines, comments aside, that call a package manager."""
    return [line for line in text.splitlines() if ASKS.search(line.partition("#")[0])]


@pytest.mark.parametrize("case", CASES)
def test_no_box_waits_for_a_package_manager(case: str, tmp_path: Path) -> None:
    assert asks(render(tmp_path, case)) == []
    for path in BOX.glob("*.py"):
        assert asks(path.read_text()) == [], path.name


def test_what_would_be_refused_is_found() -> None:
    for text in ("apt-get install -y x", "  dpkg -i x", '["apt", "install"]', "true; yum update"):
        assert asks(text) == [text]


def test_upgrades_are_off_once_the_power_off_is_armed_and_are_not_waited_for(
    tmp_path: Path,
) -> None:
    script = render(tmp_path, "aws")
    armed, off = (
        script.index("enable --now gpurun-end.timer"),
        script.index("mask --now apt-daily"),
    )
    assert armed < off < script.index("s3 get")
    line = script[script.rindex("\n", 0, off) : script.index("\n", off)]
    assert "--no-block" in line
    assert {"apt-daily-upgrade.timer", "unattended-upgrades.service"} <= set(line.split())


@pytest.fixture
def machine(rig: Rig, tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(rig, tmp_path)
    yield machine
    machine.pull_the_plug()


@pytest.mark.slow
def test_a_box_whose_package_managers_all_hang_does_its_job(machine: Machine) -> None:
    path = ""
    for name in INSTALLERS:
        path = machine.tool(name, f'echo {name} >>"{machine.folder}/asked"; exec sleep 300')
    plan = machine.plan()
    machine.boot(machine.script(plan, machine.upload(plan).sha256), PATH=path)
    until(machine.rig.off.exists, 40)
    assert machine.rig.json("jobs/train/COMPLETE")["state"] == "done"
    assert not (machine.folder / "asked").exists()
