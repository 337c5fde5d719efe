"""A job that failed stays failed when its spot box is taken away, and the others go on."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest

from orchestrator.box import agent, fold
from orchestrator.box.lanes import Outcome
from orchestrator.catalog import load_catalog
from orchestrator.plan import Plan, make_plan
from orchestrator.results import State
from orchestrator.runbook import load_runbook
from tests.faults import life, machine, search
from tests.faults.clock import START
from tests.faults.fault import parse
from tests.faults.life import BUCKET, Life, live
from tests.faults.strikes import Strikes
from tests.faults.trainer import Trainer
from tests.faults.world import World

WHY = "exit status 1: started at step 0"


class FailingTrainer(Trainer):
    """The job `warm` exits with 1, each time."""

    def advance(self) -> None:
        if self.job == "warm":
            self._code = 1
        else:
            super().advance()


def plan_of(folder: Path) -> Plan:
    """As the usual life, but that nothing waits for `warm`, and the other takes its time."""
    text = (
        life.RUNBOOK.read_text().replace("    needs: [warm]\n", "").replace("sim 3\n", "sim 12\n")
    )
    (folder / "failing.yaml").write_text(text)
    runbook = load_runbook(folder / "failing.yaml")
    plan = make_plan(runbook, now=START, catalog=load_catalog(), cloud="aws")
    return plan.model_copy(update={"cap_usd": plan.worst_case_usd})


def lived(folder: Path) -> tuple[Life, dict[str, int]]:
    """The life, and how often the job `warm` was started on each box in its place."""
    search.quiet()
    plan = plan_of(folder)
    world = World(Strikes(parse("spot-taken@short:put_object#24")))
    with (
        mock.patch.object(machine, "Trainer", FailingTrainer),
        mock.patch.object(life, "the_plan", return_value=plan),
    ):
        found = live(world)
    boxes = [m for m in world.machines.values() if m.name == "short"]
    return found, {m.instance_id: sum(t.job == "warm" for t in m.trainers) for m in boxes}


def status(found: Life, job: str) -> dict[str, object]:
    said = found.world.cloud.objects(BUCKET)[f"runs/{found.runs[-1]}/jobs/{job}/status.json"]
    return dict(json.loads(said))


def test_a_job_that_failed_before_its_box_was_taken_away_doesnt_run_on_the_next_one(
    tmp_path: Path,
) -> None:
    found, started = lived(tmp_path)
    try:
        assert [*started.values()] == [2, 0], "as often as its retries allow, and no more"
        warm, judge = status(found, "warm"), status(found, "judge")
        assert (warm["state"], warm["reason"], warm["attempt"]) == ("failed", WHY, 2)
        assert judge["state"] == "done"
        assert found.pulled[found.runs[-1]].jobs["judge"].state is State.COMPLETE
    finally:
        found.world.close()


def test_without_the_look_back_it_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fold.fold

    def blind(state: object, outcome: Outcome, now: float) -> object:
        seen = {} if type(outcome.action).__name__ == "LookBack" else outcome.value
        return real(state, Outcome(outcome.action, seen, outcome.error), now)  # type: ignore[arg-type]

    monkeypatch.setattr(agent, "fold", blind)
    found, started = lived(tmp_path)
    found.world.close()
    assert [*started.values()] == [2, 2]
