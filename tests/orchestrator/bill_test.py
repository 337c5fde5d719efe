"""What a run has cost: seconds to dollars, rounded up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from orchestrator.bill import S3Use, Span, bill, s3_line, s3_usd, span_lines, span_usd, writes_of
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


def test_a_whole_run_costs_what_a_person_adds_up_by_hand() -> None:
    """Ledgers that left out the disk, or took a spot price for the on-demand one, cost people."""
    # An L40S box for 2 h 30 min, 200 GB of gp3, and what it left in S3, at us-east-1's prices:
    #   compute  2.5 h x $3.00424                         = 7.510600
    #   disk     200 GB x $0.08 x 2.5 h / 730 h           = 0.054795 (up)
    #   address  2.5 h x $0.005                           = 0.012500
    #   S3       3 GB kept a month x $0.023               = 0.069
    #            2 GB pulled x $0.09                      = 0.18
    #            4,000 writes x $0.005 / 1000             = 0.02
    #            500 looks x 14 listings x $0.005 / 1000  = 0.035
    #            500 looks x 20 kB x $0.09 / GB           = 0.0009
    use = S3Use(
        stored_bytes=3 * 10**9,
        pulled_bytes=2 * 10**9,
        writes=4_000,
        looks=500,
        lists_per_look=14,
        look_bytes=20_000,
    )
    s3 = s3_usd(use, CATALOG.storage(REGION), Decimal(1))
    assert s3 == Decimal("0.3049")
    found = bill(
        [span(2.5 * 3600)],
        CATALOG,
        REGION,
        cap_usd=Decimal(40),
        worst_case_usd=Decimal(20),
        now=START,
        s3=s3_line("s3:results", use, s3),
    )
    assert [line.kind for line in found.lines] == ["compute", "disk", "address", "s3"]
    assert found.total_usd == Decimal("7.882795")


USE = S3Use(stored_bytes=10**9, pulled_bytes=10**9, writes=1_000, looks=10**6)


def test_what_was_overwritten_costs_for_as_long_as_the_bucket_keeps_it() -> None:
    rates, old = CATALOG.storage(REGION), S3Use(stored_bytes=10**9, pulled_bytes=0, writes=0)
    assert old.left_usd(rates) == Decimal("0.023")
    old = S3Use(stored_bytes=10**9, pulled_bytes=0, writes=0, old_bytes=10**9)
    assert old.left_usd(rates) == Decimal("0.069568")  # 92 days of 24 h, a month being 730 h


def test_looks_that_nobody_counted_cost_at_most_what_was_reserved() -> None:
    assert s3_usd(USE, CATALOG.storage(REGION), Decimal("0.45")) == Decimal("0.45")


def test_what_lies_in_the_bucket_is_told_as_it_is_even_above_what_was_reserved() -> None:
    assert s3_usd(USE, CATALOG.storage(REGION), Decimal("0.05")) == Decimal("0.118")


@pytest.mark.parametrize(
    ("size", "writes"), [(0, 1), (8 << 20, 1), ((8 << 20) + 1, 4), (1 << 30, 130)]
)
def test_a_big_object_is_written_in_parts_each_of_them_billed(size: int, writes: int) -> None:
    assert writes_of(size) == writes
