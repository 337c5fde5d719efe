"""Jobs that ask for a GPU: each gets one box of it, the same each time, within its hours."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.catalog import load_catalog
from orchestrator.checks import check_spec
from orchestrator.errors import RunbookError
from orchestrator.placement import gpus_of, place
from orchestrator.plan import Plan, make_plan
from orchestrator.quote import BOOT
from orchestrator.runbook import load_runbook
from orchestrator.schedule import box_end, expected_slots
from orchestrator.spec import RunbookSpec

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
INSTANCES = {"L4": "g6.4xlarge", "L40S": "g6e.4xlarge"}
HOUR = timedelta(hours=1)


def spec_of(boxes: dict[str, Any], jobs: dict[str, Any]) -> RunbookSpec:
    """Boxes as (GPU, hours), jobs as (GPU or box, minutes, needs)."""
    return RunbookSpec.model_validate(
        {
            "name": "demo",
            "cap_usd": 1000,
            "regions": ["us-east-1"],
            "boxes": {n: {"instance": INSTANCES[g], "hours": h} for n, (g, h) in boxes.items()},
            "jobs": {
                name: {
                    ("gpu" if where in INSTANCES else "box"): where,
                    "command": "true",
                    "hours": f"{minutes}m",
                    "needs": needs,
                }
                for name, (where, minutes, needs) in jobs.items()
            },
        }
    )


def placed(spec: RunbookSpec) -> dict[str, str]:
    found, _ = place(spec, load_catalog())
    return {name: job.box for name, job in found.jobs.items()}


@st.composite
def specs(draw: st.DrawFn) -> RunbookSpec:
    """One to three boxes of each GPU; up to twelve jobs that need some of those before them."""
    boxes = {
        f"{gpu.lower()}-{n}": (gpu, draw(st.sampled_from([2, 4, 8])))
        for gpu in INSTANCES
        for n in range(draw(st.integers(1, 3)))
    }
    jobs: dict[str, Any] = {}
    for n in range(draw(st.integers(1, 12))):
        needs = draw(
            st.lists(st.sampled_from(sorted(jobs)), max_size=2, unique=True)
            if jobs
            else st.just([])
        )
        where = draw(st.sampled_from([*INSTANCES, *boxes]))
        jobs[f"job-{draw(st.integers(0, 99)):02}-{n}"] = (where, draw(st.integers(1, 240)), needs)
    return spec_of(boxes, jobs)


@given(specs())
def test_each_job_gets_one_box_of_its_gpu_and_the_rest_stay_where_they_were(
    spec: RunbookSpec,
) -> None:
    found, _ = place(spec, load_catalog())
    gpus = gpus_of(spec, load_catalog())

    assert list(found.jobs) == list(spec.jobs)
    for name, job in spec.jobs.items():
        assert gpus[found.jobs[name].box] == job.gpu if job.gpu else found.jobs[name] == job
    assert place(spec, load_catalog())[0] == found


@given(specs())
def test_what_is_placed_ends_within_its_boxes_hours_or_is_refused(spec: RunbookSpec) -> None:
    found, faults = place(spec, load_catalog())
    slots = expected_slots(found)
    late = {
        name
        for name, box in found.boxes.items()
        if any(job.box == name and spec.jobs[other].gpu for other, job in found.jobs.items())
        and box_end(found, name, slots) + BOOT["aws"] > box.hours - box.drain
    }

    assert {fault.path[1] for fault in faults} == late


@given(specs(), st.randoms(use_true_random=False))
def test_the_order_of_the_boxes_in_the_file_changes_nothing(
    spec: RunbookSpec, rng: random.Random
) -> None:
    shuffled = rng.sample(list(spec.boxes.items()), len(spec.boxes))

    assert placed(spec.model_copy(update={"boxes": dict(shuffled)})) == placed(spec)


@given(specs())
def test_a_box_runs_one_job_at_a_time_and_none_before_what_it_needs(spec: RunbookSpec) -> None:
    found, _ = place(spec, load_catalog())
    slots = expected_slots(found)

    for box in found.boxes:
        mine = sorted(slots[n].start for n, job in found.jobs.items() if job.box == box)
        ends = sorted(slots[n].end for n, job in found.jobs.items() if job.box == box)
        assert all(end <= start for end, start in zip(ends, mine[1:], strict=False))
    for name, job in found.jobs.items():
        assert all(slots[other].end <= slots[name].start for other in job.needs)


def test_the_longest_comes_first_and_boxes_end_together() -> None:
    jobs = {"a": 30, "b": 60, "c": 20, "d": 50, "e": 40}
    spec = spec_of(
        {"one": ("L4", 4), "two": ("L4", 4)}, {n: ("L4", m, []) for n, m in jobs.items()}
    )

    # 60 | 50, then 40 beside 50, 30 beside 60, and 20 on the box whose name comes first
    assert placed(spec) == {"a": "one", "b": "one", "c": "one", "d": "two", "e": "two"}


def test_a_box_starts_the_first_of_the_file_that_is_ready_rather_than_wait() -> None:
    spec = spec_of(
        {"l40s": ("L40S", 8), "l4": ("L4", 8)},
        {"long": ("L4", 60, ["warm"]), "short": ("L4", 10, []), "warm": ("L40S", 15, [])},
    )
    slots = expected_slots(place(spec, load_catalog())[0])

    assert slots["short"].end == timedelta(minutes=10)
    assert (slots["long"].start, slots["long"].end) == (HOUR / 4, HOUR * 1.25)


def test_a_job_goes_where_it_fits_though_another_box_is_free_sooner() -> None:
    spec = spec_of(
        {"brief": ("L4", 1), "long": ("L4", 4)},
        {"first": ("long", 60, []), "big": ("L4", 100, [])},
    )

    assert placed(spec)["big"] == "long"


def test_a_job_goes_to_a_box_that_outlives_what_it_needs() -> None:
    spec = spec_of(
        {"brief": ("L4", 2), "long": ("L4", 4), "far": ("L40S", 4)},
        {"warm": ("far", 5, []), "other": ("long", 60, []), "then": ("L4", 10, ["warm"])},
    )

    assert placed(spec)["then"] == "long"


def test_what_others_wait_for_goes_to_a_box_that_they_outlive() -> None:
    spec = spec_of(
        {"brief": ("L4", 2), "long": ("L4", 4)},
        {"then": ("L4", 60, ["warm"]), "warm": ("L4", 10, []), "other": ("L4", 20, [])},
    )

    # "then", the longest, is on "brief" already; "long" would be done with "warm" sooner
    assert placed(spec) == {"then": "brief", "warm": "brief", "other": "long"}


PLAIN = """\
name: demo
cap_usd: 40
regions: [us-east-1]
boxes:
  l4: {instance: g6.4xlarge, hours: 2}
jobs:
  a: {gpu: L4, command: "true", hours: 30m}
"""


def plan_of(folder: Path, text: str) -> Plan:
    (folder / "demo.yaml").write_text(text)
    runbook = load_runbook(folder / "demo.yaml")
    return make_plan(runbook, now=NOW, catalog=load_catalog(), cloud="aws")


def test_a_plan_says_which_box_and_when(tmp_path: Path) -> None:
    job = plan_of(tmp_path, PLAIN).job("a")

    assert job.box == "l4"
    assert (job.expected_start_hours, job.expected_end_hours) == (Decimal("0.1"), Decimal("0.6"))


@pytest.mark.parametrize(
    ("old", "new", "says", "fix"),
    [
        ("gpu: L4", "gpu: L40S", "jobs.a.gpu: no box has a 'L40S'", "Known here: L4."),
        ("gpu: L4", "gpu: l4", "1 fault; nothing was created", "jobs.a.gpu: no box has a 'l4'"),
        (
            "hours: 2}",
            "fallbacks: [g6e.4xlarge], hours: 2}",
            "boxes.l4.fallbacks[0]: g6e.4xlarge has L40S, and jobs with `gpu: L4`",
            "Take it out",
        ),
        ("gpu: L4", "gpu: L4, box: l4", "jobs.a: has both box and gpu", "Keep one"),
        ("gpu: L4, ", "", "jobs.a: needs either a box or a gpu", "exactly one"),
        (", hours: 30m}", "}", "jobs.a: a job with a gpu needs hours", "how long it takes"),
        ("gpu: L4", "gpu: 'L4!'", "jobs.a.gpu: 'L4!' can't name a GPU", "L4 or L40S"),
        ("hours: 30m", "hours: 100m", "boxes.l4.hours: the jobs placed on it", "more hours"),
        (
            "jobs:",
            "  l4-b: {instance: g6.4xlarge, hours: 2}\njobs:",
            "boxes.l4-b: no job runs on it",
            "take it out",
        ),
    ],
)
def test_what_cannot_be_placed_is_refused_with_the_field_and_the_fix(
    tmp_path: Path, old: str, new: str, says: str, fix: str
) -> None:
    with pytest.raises(RunbookError) as refused:
        plan_of(tmp_path, PLAIN.replace(old, new))

    assert says in str(refused.value)
    assert fix in str(refused.value)


def test_a_misspelled_instance_is_the_only_fault_of_jobs_that_ask_for_its_gpu(
    tmp_path: Path,
) -> None:
    with pytest.raises(RunbookError, match=r"1 fault;(.|\n)*no instance type 'g6.4xlage'"):
        plan_of(tmp_path, PLAIN.replace("g6.4xlarge", "g6.4xlage"))


def test_a_job_on_no_box_that_lives_long_enough_is_refused(tmp_path: Path) -> None:
    text = PLAIN.replace("hours: 30m", "hours: 30m, needs: [warm]").replace(
        "jobs:",
        "  far: {instance: g6e.4xlarge, hours: 3}\n"
        'jobs:\n  warm: {gpu: L40S, command: "true", hours: 5m}',
    )

    with pytest.raises(RunbookError, match="Give l4 at least as many hours as far"):
        plan_of(tmp_path, text)


def test_a_runbook_with_unplaced_jobs_is_checked_as_far_as_it_goes() -> None:
    spec = spec_of({"l4": ("L4", 2)}, {"a": ("L4", 30, [])})

    assert check_spec(spec, catalog=load_catalog(), pins=(), programs=()) == []
