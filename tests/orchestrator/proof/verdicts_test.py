"""An end proves an enforcer only if it was that enforcer's, and neither early nor late."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.aws.boxes import BoxRecord
from orchestrator.proof.checks import Verdict
from orchestrator.proof.design import AWS
from orchestrator.proof.verdicts import (
    BY_CALL,
    BY_ITSELF,
    Expected,
    Seen,
    Sightings,
    asked,
    is_settled,
    judge,
)

DUE = datetime(2026, 11, 29, 19, 5, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return DUE + timedelta(seconds=seconds)


TIMER = Expected("timer", "its timer", BY_ITSELF, DUE, after(120), after(420))
GOOD = Seen("timer", "terminated", BY_ITSELF, after(1.5), after(9))


def test_an_end_in_time_by_the_right_hand_passes_and_tells_both_times() -> None:
    check = judge(TIMER, GOOD)
    assert check.verdict is Verdict.PASS
    assert check.seconds == 1.5
    assert "terminated 7.5 s on" in check.words()


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (Seen("timer", "running"), "its timer did not end it: still running"),
        (replace(GOOD, ended_at=after(-30)), "30 s before its timer could"),
        (replace(GOOD, reason=BY_CALL), f"ended by {BY_CALL}, not {BY_ITSELF}"),
        (replace(GOOD, reason=""), "nobody knows whom"),
        (replace(GOOD, ended_at=after(150)), "30 s too late"),
        (replace(GOOD, state="shutting-down", gone_at=None), "doesn't go on to end"),
    ],
)
def test_any_other_end_fails_and_says_why(seen: Seen, words: str) -> None:
    check = judge(TIMER, seen)
    assert check.verdict is Verdict.FAIL
    assert words in check.detail


def test_a_box_is_waited_for_until_it_is_terminated_or_hopelessly_late() -> None:
    running = Seen("timer", "running")
    assert not is_settled(TIMER, running, after(419))
    assert is_settled(TIMER, running, after(421))
    assert is_settled(TIMER, GOOD, after(10))


def test_ec2s_own_time_of_an_end_counts_before_the_time_it_was_seen() -> None:
    record = BoxRecord(
        box="timer",
        instance_id="i-1",
        instance_type="t3.nano",
        zone="us-east-1a",
        state="shutting-down",
        reason=BY_ITSELF,
        launched_at=after(-300),
        ended_at=after(2),
        ip=None,
        ssh_port=22,
    )
    seen = Sightings()
    seen.look([record], after(40))
    seen.look([replace(record, state="terminated")], after(60))
    assert seen.of("timer") == Seen("timer", "terminated", BY_ITSELF, after(2), after(60))


def test_a_box_ended_by_a_call_is_expected_from_that_moment_on() -> None:
    expected = asked("controller", "the controller", DUE, AWS)
    assert expected.reason == BY_CALL
    assert expected.by == after(AWS.ends_late)
