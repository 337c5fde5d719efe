"""What next for a box, as a table: what EC2 says of it, what its jobs say, what time it is."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.catalog import load_catalog
from orchestrator.lives import GONE, UNLISTED, Life
from orchestrator.plan import PlannedBox, PlannedJob, make_plan
from orchestrator.quote import SLACK, worst_from_now_usd
from orchestrator.recovery import (
    ENDED,
    Close,
    Facts,
    Launch,
    Over,
    Wait,
    is_over,
    next_for,
    twins,
)
from orchestrator.runbook import load_runbook

SMOKE = Path(__file__).resolve().parents[2] / "runbooks" / "smoke.yaml"
NOW = datetime.fromisoformat("2026-12-01T20:00:00+00:00")
CATALOG = load_catalog()
PLAN = make_plan(load_runbook(SMOKE), now=NOW, catalog=CATALOG, cloud="local")
BOX, JOB = PLAN.box("one"), PLAN.job("count")
SPOT = BOX.model_copy(update={"spot": True})
RUNNING = {"count": {"job": "count", "state": "running", "complete": False}}
DONE = {"count": {"job": "count", "state": "done", "complete": True}}
FAILED = {"count": {"job": "count", "state": "failed", "complete": False}}
NOTICED = {"count": {"job": "count", "state": "cut", "reason": "spot notice: step 7"}}
CLOSED = {"count": {"job": "count", "state": "cut", "reason": f"{ENDED}Server.Spot"}}
TAKEN, OFF = "Server.SpotInstanceTermination", "Client.InstanceInitiatedShutdown"
HAND = "Client.UserInitiatedShutdown"


def life(state: str, reason: str = "", attempt: int = 1, **changes: Any) -> Life:
    made = Life(
        box="one",
        attempt=attempt,
        instance_id=f"i-{attempt}",
        instance_type="g6.xlarge",
        zone="us-east-1a",
        state=state,
        reason=reason,
        launched_at=NOW,
        ended_at=None,
        noted_at=NOW,
    )
    return replace(made, **changes)


def ended(reason: str, attempt: int = 1) -> Life:
    return life("terminated", reason, attempt, ended_at=NOW)


def facts(
    *lives: Life,
    statuses: dict[str, Any] = RUNNING,
    retries: int = 1,
    box: PlannedBox = BOX,
    heard_at: datetime | None = None,
) -> Facts:
    jobs: list[PlannedJob] = [JOB.model_copy(update={"retries": retries})]
    return Facts(box=box, jobs=jobs, lives=lives, statuses=statuses, heard_at=heard_at)


LATE = BOX.drain_at


@pytest.mark.parametrize(
    "known,now,expected",
    [
        pytest.param(facts(), NOW, Launch(1), id="never launched"),
        pytest.param(facts(), LATE, Close, id="never launched, and too late for it"),
        pytest.param(facts(life("pending")), NOW, Wait, id="pending"),
        pytest.param(facts(life("running")), LATE, Wait, id="running past its drain"),
        pytest.param(facts(life("shutting-down", TAKEN)), NOW, Wait, id="not terminated yet"),
        pytest.param(facts(life("stopped", HAND)), NOW, Wait, id="stopped by hand still bills"),
        pytest.param(facts(ended(TAKEN)), NOW, Launch(2, TAKEN), id="spot took it"),
        pytest.param(
            facts(ended("Server.InternalError")),
            NOW,
            Launch(2, "Server.InternalError"),
            id="the host under it failed",
        ),
        pytest.param(facts(ended(HAND)), NOW, Close, id="a person ended it"),
        pytest.param(facts(ended(OFF)), NOW, Close, id="the box gave up"),
        pytest.param(facts(ended(OFF), statuses=DONE), NOW, Over, id="it was done"),
        pytest.param(facts(ended(OFF), statuses=FAILED), NOW, Over, id="its job failed"),
        pytest.param(facts(ended(TAKEN), statuses=DONE), NOW, Over, id="lost after its jobs"),
        pytest.param(facts(ended(TAKEN), statuses=CLOSED), NOW, Over, id="given up before"),
        pytest.param(
            facts(ended(OFF), statuses=NOTICED, box=SPOT),
            NOW,
            Launch(2, OFF),
            id="a spot box drained after the notice",
        ),
        pytest.param(
            facts(ended(OFF), statuses=NOTICED), NOW, Close, id="no spot box gets a notice"
        ),
        pytest.param(
            facts(ended(OFF), statuses=RUNNING, box=SPOT), NOW, Close, id="a spot box gave up"
        ),
        pytest.param(facts(ended(TAKEN)), LATE, Close, id="lost, and no time is left"),
        pytest.param(facts(ended(TAKEN), retries=0), NOW, Close, id="lost, and no retry"),
        pytest.param(
            facts(ended(TAKEN), ended(TAKEN, 2)), NOW, Close, id="lost again, retries are used up"
        ),
        pytest.param(
            facts(ended(TAKEN), ended(TAKEN, 2), retries=2),
            NOW,
            Launch(3, TAKEN),
            id="lost again, within its retries",
        ),
        pytest.param(
            facts(ended(TAKEN), life("running", attempt=2)), NOW, Wait, id="its successor lives"
        ),
        pytest.param(
            facts(ended(TAKEN), heard_at=NOW - timedelta(seconds=30)),
            NOW,
            Wait,
            id="its agent was heard of",
        ),
        pytest.param(
            facts(ended(TAKEN), heard_at=NOW - timedelta(seconds=61)),
            NOW,
            Launch(2, TAKEN),
            id="its agent has been silent",
        ),
        pytest.param(
            facts(ended(TAKEN), heard_at=NOW + timedelta(hours=2)),
            NOW,
            Launch(2, TAKEN),
            id="its clock was wrong",
        ),
        pytest.param(
            facts(life(GONE)), NOW + timedelta(minutes=4), Wait, id="EC2 doesn't show it yet"
        ),
        pytest.param(
            facts(life(GONE)),
            NOW + timedelta(minutes=6),
            Launch(2, UNLISTED),
            id="EC2 has forgotten it",
        ),
        pytest.param(
            facts(life(GONE), statuses=DONE),
            NOW + timedelta(minutes=6),
            Over,
            id="EC2 has forgotten it after its jobs",
        ),
        pytest.param(
            facts(ended(UNLISTED)), NOW, Launch(2, UNLISTED), id="noted as forgotten before"
        ),
    ],
)
def test_what_next(known: Facts, now: datetime, expected: Any) -> None:
    found = next_for(known, now)
    assert isinstance(found, expected) if isinstance(expected, type) else found == expected


@pytest.mark.parametrize(
    "lives,expected",
    [((), Over), ((ended(TAKEN),), Over), ((life("running"),), Wait), ((life(GONE),), Wait)],
    ids=["never launched", "lost", "running", "not shown yet"],
)
def test_nothing_is_launched_of_a_run_that_is_taken_down(
    lives: tuple[Life, ...], expected: type
) -> None:
    assert isinstance(next_for(facts(*lives), NOW, ending=True), expected)


def test_why_no_box_goes_on_is_told() -> None:
    found = next_for(facts(ended(TAKEN), retries=0), NOW)
    assert isinstance(found, Close)
    assert found.reason == f"its box ended: {TAKEN}, and no retry is left"


def test_a_job_that_the_controller_cut_stays_cut() -> None:
    assert is_over(CLOSED["count"])
    assert not is_over(NOTICED["count"])


def unarmed(attempt: int = 1) -> Life:
    return replace(ended(HAND, attempt), unarmed=True)


def test_what_could_not_be_armed_is_launched_again_and_takes_no_retry() -> None:
    assert next_for(facts(unarmed(), retries=0), NOW) == Launch(2, HAND)
    lost = facts(unarmed(), ended(TAKEN, 2), retries=0)
    assert next_for(lost, NOW) == Close(f"{ENDED}{TAKEN}, and no retry is left")
    assert next_for(replace(lost, jobs=facts(retries=1).jobs), NOW) == Launch(3, TAKEN)


def test_what_can_never_be_armed_is_not_launched_for_ever() -> None:
    tries = [unarmed(attempt) for attempt in (1, 2, 3, 4)]
    assert next_for(facts(*tries[:3], retries=0), NOW) == Launch(4, HAND)
    assert isinstance(next_for(facts(*tries, retries=0), NOW), Close)


@pytest.mark.parametrize(
    "reason,expected", [(TAKEN, Launch(2, TAKEN)), (OFF, Close), (HAND, Close)]
)
def test_a_twin_that_was_ended_doesnt_speak_for_its_box(reason: str, expected: Any) -> None:
    twin = life("terminated", HAND, instance_id="i-b", launched_at=NOW + timedelta(seconds=9))
    found = next_for(facts(ended(reason), twin), NOW)
    if expected is Close:
        assert found == Close(ENDED + reason)
    else:
        assert found == expected


def test_the_oldest_of_two_living_twins_is_kept() -> None:
    first = life("running", instance_id="i-b")
    second = life("pending", instance_id="i-a", launched_at=NOW + timedelta(seconds=1))
    assert twins([second, first]) == ["i-a"]
    assert twins([ended(TAKEN), life("running", attempt=2)]) == []


@pytest.mark.parametrize("lost_after_s", [61, 120, 300, 599])
def test_a_lost_box_and_its_successor_fit_into_what_was_reserved_for_the_first(
    lost_after_s: int,
) -> None:
    storage, price = CATALOG.storage(PLAN.region), BOX.worst_price_usd_per_hour
    lost_at = NOW + timedelta(seconds=lost_after_s)
    spent = (price + storage.ipv4_hour) * lost_after_s / 3600
    spent += storage.gp3_gb_month * BOX.disk_gb * lost_after_s / 3600 / 730
    again = worst_from_now_usd(price, storage, BOX.disk_gb, BOX.cloud_at - lost_at)
    assert spent + again <= BOX.worst_case_usd


def test_after_its_deadline_a_box_is_still_reserved_for_what_it_may_cost() -> None:
    storage, price = CATALOG.storage(PLAN.region), BOX.worst_price_usd_per_hour
    late = worst_from_now_usd(price, storage, BOX.disk_gb, timedelta(minutes=-5))
    assert late >= price * Decimal(SLACK.total_seconds()) / 3600
