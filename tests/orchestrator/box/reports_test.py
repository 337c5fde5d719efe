"""What a box tells of itself stays within what the plan's price answers for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.box.actions import Report
from orchestrator.box.connection import StoreDown
from orchestrator.box.decide import decide
from orchestrator.box.errands import Errands
from orchestrator.box.reports import (
    CONSOLE_BYTES,
    STATUS_BYTES,
    console_every_s,
    fit,
    most_bytes,
    most_writes,
)
from orchestrator.box.state import State
from tests.faults import search
from tests.faults.life import BUCKET, live, the_plan
from tests.faults.strikes import Strikes
from tests.faults.world import World

from .decide_test import T0, box, running
from .errands_desk import console_key, errands_of
from .memory_store import Held


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def state() -> State:
    return box({"name": "a"})


def send(errands: Errands, *, log: bool, now: float = T0) -> None:
    errands.of(Report("running", log=log), now)[1]()


def test_the_console_goes_once_a_minute_on_aws_and_every_few_seconds_on_the_local_cloud(
    state: State,
) -> None:
    assert (console_every_s(10), console_every_s(1)) == (60, 6)
    running(state)
    state.log_shipped_at = T0
    logs = []
    for now in range(int(T0) + 10, int(T0) + 130, 10):
        state.reported_at = now - 10
        (report,) = [it for it in decide(state, now) if isinstance(it, Report)]
        state.log_shipped_at = now if report.log else state.log_shipped_at
        logs += [now - T0] if report.log else []
    assert logs == [60, 120]


def test_a_console_that_says_nothing_new_isnt_shipped_again(
    state: State, held: Held, tmp_path: Path
) -> None:
    errands, console = errands_of(state, held, tmp_path), tmp_path / "console.log"
    console.write_bytes(b"booted\n")
    send(errands, log=True)
    assert held.objects.pop(console_key()) == b"booted\n"
    send(errands, log=True)
    assert console_key() not in held.objects
    console.write_bytes(b"booted\ntrain: done\n")
    send(errands, log=False)
    assert console_key() not in held.objects
    send(errands, log=True)
    assert held.objects[console_key()] == b"booted\ntrain: done\n"


def test_a_console_that_couldnt_be_shipped_goes_the_next_time(
    state: State, held: Held, tmp_path: Path
) -> None:
    errands = errands_of(state, held, tmp_path)
    (tmp_path / "console.log").write_bytes(b"booted\n")
    held.puts_left = 1  # the status
    with pytest.raises(StoreDown):
        send(errands, log=True)
    held.puts_left = None
    send(errands, log=True)
    assert held.objects[console_key()] == b"booted\n"


def test_only_the_end_of_a_long_console_is_shipped(
    state: State, held: Held, tmp_path: Path
) -> None:
    errands = errands_of(state, held, tmp_path)
    (tmp_path / "console.log").write_bytes(b"x" * 3 * CONSOLE_BYTES + b"end")
    send(errands, log=True)
    assert len(held.objects[console_key()]) == CONSOLE_BYTES
    assert held.objects[console_key()].endswith(b"xend")


WORDY = "\N{GRINNING FACE}" * 5000


@pytest.mark.parametrize(
    "metrics",
    [{}, {f"metric/{n}": n / 7 for n in range(5000)}, {WORDY: 1, "b": 2}, {"a": WORDY}],
)
def test_a_status_never_exceeds_its_size_whatever_a_job_says(metrics: dict[str, Any]) -> None:
    state = box({"name": "a"})
    job = running(state)
    job.metrics, job.reason = metrics, WORDY
    status = fit(job.status("box", T0))
    assert len(json.dumps(status).encode()) <= STATUS_BYTES
    assert status["metrics"].items() <= metrics.items()


def test_a_status_of_ordinary_size_is_left_as_it_is() -> None:
    state = box({"name": "a"})
    job = running(state)
    job.metrics = {f"rewards/function_{n}/mean": 0.123456789 for n in range(80)}
    job.reason = "exit status 1; started again"
    assert fit(job.status("box", T0)) == job.status("box", T0)


def test_all_that_the_boxes_of_a_life_report_is_within_what_was_priced() -> None:
    search.quiet()
    world, plan = World(Strikes(())), the_plan()
    try:
        live(world)
        kept = world.cloud.buckets[BUCKET].objects
    finally:
        world.close()
    for planned in plan.boxes:
        jobs = [job.name for job in plan.jobs_of(planned.name)]
        ours = [f"/boxes/{planned.name}/", *(f"/jobs/{name}/status.json" for name in jobs)]
        told = [it for key, all_ in kept.items() if any(o in key for o in ours) for it in all_]
        life_s = int((planned.cloud_at - plan.planned_at).total_seconds())
        assert 0 < sum(len(it.data or b"") for it in told) <= most_bytes(life_s, 10, len(jobs))
        assert 10 < len(told) <= most_writes(life_s, 10, len(jobs), 0)


def test_the_price_of_reports_grows_with_life_and_tick_and_not_with_what_is_said() -> None:
    day = 24 * 3600
    assert most_bytes(day, 10, 1) < 0.55e9
    assert most_bytes(7 * day, 10, 1) < 7 * most_bytes(day, 10, 1)
    assert most_writes(day, 10, 1, 2) - most_writes(day, 10, 1, 0) == 4 * day / 5
