"""Durations: read as written, told as short as they can be read."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.duration import format_duration, from_hours, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 10), ("15m", 900), ("2h", 7200), ("1h30m", 5400), ("0.5h", 1800), ("1m30s", 90)],
)
def test_a_duration_is_read_with_its_units(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "15", "1:30", "m", "-5m", "5m10h", "5 m", "1e3s", "٣m"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_duration(text)


@pytest.mark.parametrize("hours", ["NaN", "Infinity", "1e30", "-1e30"])
def test_hours_beyond_any_calendar_are_refused(hours: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        from_hours(Decimal(hours))


def test_hours_become_whole_seconds() -> None:
    assert from_hours(Decimal("0.3")) == timedelta(minutes=18)
    assert from_hours(Decimal("0.0001")) == timedelta(seconds=0)


@given(st.integers(0, 10**8))
def test_a_told_duration_is_read_back_as_it_was(seconds: int) -> None:
    duration = timedelta(seconds=seconds)

    assert parse_duration(format_duration(duration)) == duration
