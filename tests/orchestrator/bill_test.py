"""What a run has cost: seconds to dollars, rounded up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from orchestrator.bill import Span, bill, span_lines, span_usd
from orchestrator.catalog import load_catalog

START = datetime(2026, 12, 1, 20, 0, tzinfo=UTC)
CATALOG = load_catalog()
REGION = "us-east-1"


def span(seconds: float | None) -> Span:
    ended = None if seconds is None else START + timedelta(seconds=seconds)
    return Span("l40s", "g6e.4xlarge", 200, START, ended)


def test_103_minutes_of_an_l40s_cost_what_the_price_list_says() -> None:
    compute, _, _ = span_lines(span(103 * 60), CATALOG, REGION, START)
    assert compute.usd == Decimal("5.157279")  # 3.00424 $/h, rounded up


def test_a_box_that_ended_at_once_is_billed_a_minute() -> None:
    assert span(2).hours(START) == Decimal(60) / Decimal(3600)


def test_a_box_that_still_runs_is_billed_up_to_now() -> None:
    hour_later = START + timedelta(hours=1)
    assert span(None).hours(hour_later) == 1


def test_disk_and_address_are_on_the_bill() -> None:
    _, disk, address = span_lines(span(7 * 3600), CATALOG, REGION, START)
    assert disk.usd == Decimal("0.153425")  # 200 GB x $0.08 x 7 h / 730 h
    assert address.usd == Decimal("0.035000")


def test_the_total_is_the_sum_of_all_boxes() -> None:
    spans = [span(3600), span(7200)]
    found = bill(
        spans, CATALOG, REGION, cap_usd=Decimal(40), worst_case_usd=Decimal(20), now=START
    )
    assert found.total_usd == sum(span_usd(one, CATALOG, REGION, START) for one in spans)
    assert len(found.lines) == 6
