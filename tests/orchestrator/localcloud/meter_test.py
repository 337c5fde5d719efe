"""The cloud's bill: to the second, a minute at least, and never less than was used."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from orchestrator.catalog import load_catalog
from orchestrator.errors import CatalogError
from orchestrator.localcloud.meter import Kind, Launch, Meter, Stored

START = datetime(2026, 12, 1, tzinfo=UTC)
BOX = Launch(
    instance_id="i-1",
    instance_type="g6e.4xlarge",
    region="us-east-1",
    run="r1",
    box="l40s",
    disk_gb=200,
    has_public_ip=True,
)


class Metered:
    """A meter with a clock of its own and the committed prices."""

    def __init__(self) -> None:
        self.now = START
        self.meter = Meter(load_catalog(), lambda: self.now, "us-east-1")

    def bill(self, run: str | None = None, *stored: Stored) -> dict[str, Any]:
        return self.meter.bill(run, stored)

    def usd(self, kind: Kind, *stored: Stored) -> Decimal:
        lines = self.bill(None, *stored)["items"]
        return sum((Decimal(line["usd"]) for line in lines if line["kind"] == kind), Decimal(0))


@pytest.fixture
def metered() -> Metered:
    return Metered()


def test_an_hour_costs_the_hourly_price(metered: Metered) -> None:
    metered.meter.launched(BOX)
    metered.now += timedelta(hours=1)
    assert metered.usd(Kind.COMPUTE) == Decimal("3.00424")
    assert metered.usd(Kind.IPV4) == Decimal("0.005")
    assert metered.usd(Kind.EBS) == Decimal("0.021918")  # 200 GB x $0.08 / 730 h, rounded up


def test_a_run_s_boxes_run_until_their_compute_ends(metered: Metered) -> None:
    metered.meter.launched(BOX)
    assert metered.meter.running() == {"r1": 1}
    metered.meter.ended("i-1", [Kind.COMPUTE])
    assert metered.meter.running() == {}


def test_a_second_is_billed_as_a_minute_and_the_next_ones_one_by_one(metered: Metered) -> None:
    metered.meter.launched(BOX)
    metered.now += timedelta(seconds=1)
    minute = metered.usd(Kind.COMPUTE)
    assert minute == Decimal("0.050071")  # 3.00424 / 60, rounded up
    metered.now += timedelta(seconds=59)
    assert metered.usd(Kind.COMPUTE) == minute
    metered.now += timedelta(seconds=1)
    assert metered.usd(Kind.COMPUTE) > minute


def test_what_has_ended_costs_no_more(metered: Metered) -> None:
    metered.meter.launched(BOX)
    metered.now += timedelta(hours=1)
    metered.meter.ended("i-1", Kind)
    total = metered.bill()["total_usd"]
    metered.now += timedelta(hours=1)
    metered.meter.ended("i-1", Kind)
    assert metered.bill()["total_usd"] == total


def test_a_stopped_box_pays_for_its_disk_only(metered: Metered) -> None:
    metered.meter.launched(BOX)
    metered.now += timedelta(hours=1)
    metered.meter.ended("i-1", [Kind.COMPUTE, Kind.IPV4])
    compute, disk = metered.usd(Kind.COMPUTE), metered.usd(Kind.EBS)
    metered.now += timedelta(hours=1)
    assert metered.usd(Kind.COMPUTE) == compute
    assert metered.usd(Kind.EBS) > disk


def test_the_total_is_the_sum_of_its_lines_and_a_run_pays_for_itself(metered: Metered) -> None:
    metered.meter.launched(BOX)
    metered.meter.s3_request("r1", put=True, bytes_out=0)
    metered.meter.s3_request("r2", put=True, bytes_out=10**9)
    metered.now += timedelta(hours=1)
    whole, mine = metered.bill(), metered.bill("r1")
    assert sum(Decimal(line["usd"]) for line in whole["items"]) == Decimal(whole["total_usd"])
    assert {line.get("run", "r1") for line in mine["items"]} == {"r1"}
    other = Decimal(metered.bill("r2")["total_usd"])
    assert Decimal(mine["total_usd"]) + other == Decimal(whole["total_usd"])


def test_bytes_that_leave_are_billed_and_a_thousand_writes_cost_half_a_cent(
    metered: Metered,
) -> None:
    for _ in range(1000):
        metered.meter.s3_request("r1", put=True, bytes_out=0)
    metered.meter.s3_request("r1", put=False, bytes_out=10**9)
    assert metered.usd(Kind.S3) == Decimal("0.005")
    assert metered.usd(Kind.TRANSFER) == Decimal("0.09")


def test_stored_bytes_cost_by_size_and_time(metered: Metered) -> None:
    metered.now += timedelta(hours=730)
    kept = Stored(run="r1", size_bytes=10**9, since=START)
    assert metered.usd(Kind.S3, kept) == Decimal("0.023")


def test_what_has_no_price_is_not_metered_for_free(metered: Metered) -> None:
    with pytest.raises(CatalogError):
        metered.meter.price_of("t3.micro", "us-east-1")
