"""aws/amazon-ecs-ami#256, aws-parallelcluster#4127, pando85/homelab PR#4110: a driver's mismatch.

There: an unattended upgrade changes the NVIDIA library under a loaded kernel module. nvidia-smi
fails, so does every job, and the machine is paid for while nobody sees why.
Here: the driver answers wrongly, or never, before anything is installed, or torch doesn't see the
GPU after that. The job fails with nvidia-smi's words and isn't tried again; from launch to
power-off the L40S box has cost under $0.50, even where nvidia-smi hangs.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.box import install
from orchestrator.box.actions import Install
from orchestrator.box.fold import fold
from orchestrator.box.lanes import Outcome
from orchestrator.box.spec import parse_spec
from orchestrator.box.state import BROKEN, State
from orchestrator.catalog import load_catalog
from orchestrator.quote import BOOT, compute_usd
from tests.incidents.desks import cloud, rig, shared_cloud
from tests.orchestrator.box.install_test import Machine
from tests.orchestrator.box.rig import Rig, box_spec

__all__ = ["cloud", "rig", "shared_cloud"]

MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
WRONG = f"#!/bin/sh\necho '{MISMATCH}'\nexit 18\n"
SAYS_GOODBYE = timedelta(seconds=60)


def smi(folder: Path, script: str) -> str:
    """A PATH on which nvidia-smi is this script."""
    tools = folder / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(script)
    (tools / "nvidia-smi").chmod(0o755)
    return f"{tools}:{Path(sys.executable).parent}:/usr/bin:/bin"


def test_a_wrong_driver_is_refused_before_a_byte_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, gpu=True)
    monkeypatch.setenv("PATH", smi(tmp_path, WRONG))
    with pytest.raises(install.NoGpu, match="Driver/library version mismatch"):
        machine.install()
    assert not (machine.root / "venvs").exists()


def test_a_driver_that_never_answers_is_refused_in_bounded_time_and_money(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    price = load_catalog().price("g6e.4xlarge", "us-east-1").usd_per_hour
    hangs = BOOT["aws"] + timedelta(seconds=install.DRIVER_S) + SAYS_GOODBYE
    assert compute_usd(price, hangs) < Decimal("0.50")
    machine = Machine(tmp_path, gpu=True)
    monkeypatch.setattr(install, "DRIVER_S", 0.2)
    monkeypatch.setenv("PATH", smi(tmp_path, "#!/bin/sh\nexec sleep 60\n"))
    with pytest.raises(install.NoGpu, match="timed out"):
        machine.install()


def test_a_gpu_that_is_of_no_use_is_not_tried_again() -> None:
    pins = {"gpu": {"file": "pins/gpu.txt", "sha256": "0" * 64, "gpu": True, "python": None}}
    state = State.of(parse_spec(box_spec(pins=pins)))
    fold(state, Outcome(Install("gpu"), None, install.NoGpu(MISMATCH)), 1000.0)
    assert state.pins["gpu"].state == BROKEN


@pytest.mark.slow
def test_a_job_on_a_mismatched_driver_fails_by_its_words_and_its_box_powers_off(
    rig: Rig, tmp_path: Path
) -> None:
    lock = rig.root / "pins" / "gpu.txt"
    lock.parent.mkdir()
    lock.write_text("")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    rig.spec["pins"] = {
        "gpu": {"file": "pins/gpu.txt", "sha256": empty, "gpu": True, "python": None}
    }
    rig.job("train", "echo trained >out/x", pins="gpu")
    rig.extra_env["PATH"] = smi(tmp_path, WRONG)
    rig.run(within_s=20)
    status = rig.status("train")
    assert (status["state"], status["attempt"]) == ("failed", 0)
    assert MISMATCH in status["reason"]
    assert Decimal(rig.json("boxes/l4/heartbeat.json")["usd"]) <= Decimal("0.02")
