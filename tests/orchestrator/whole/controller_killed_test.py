"""SIGKILL of the controller at five points: the run ends by itself, another desk finishes it."""

from __future__ import annotations

import pytest

from .conftest import Desk, run_id_in, tree
from .own_script_test import RUNBOOK, TOTAL

pytestmark = pytest.mark.timeout(400)


@pytest.mark.parametrize("point", ["CreateVpc", "RunInstances", "training", "DeleteSubnet"])
def test_a_killed_controller_is_replaced_from_an_empty_folder(
    desk: Desk, other_desk: Desk, point: str
) -> None:
    printed = desk.dying_at(point, "up", desk.write_runbook(RUNBOOK))
    run_id = run_id_in(printed)
    other_desk.gpurun("resume", run_id)
    home = other_desk.folder / "results" / run_id
    assert (home / "train" / "out" / "weights.txt").read_bytes() == TOTAL
    status = other_desk.json("status", run_id)
    assert status["stage"] == "clean"
    assert len(status["boxes"]) == 1


def test_a_controller_killed_in_the_drain_leaves_a_run_that_ends_with_what_was_saved(
    desk: Desk, other_desk: Desk
) -> None:
    cut = RUNBOOK.replace("hours: 0.05, drain: 20s", "hours: 40s, drain: 20s")
    cut = cut.replace("hours: 0.02", "hours: 5s").replace(
        "--steps 40", "--steps 9999 --linger-s 3"
    )
    run_id = run_id_in(desk.dying_at("draining", "up", desk.write_runbook(cut)))
    other_desk.gpurun("resume", run_id, code=11)
    home = other_desk.folder / "results" / run_id
    assert "train/out/state.json" in tree(home)
    status = other_desk.json("status", run_id)
    assert status["jobs"][0]["state"] == "cut"
    assert status["stage"] == "clean"
