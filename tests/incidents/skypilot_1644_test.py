"""skypilot-org/skypilot#1644 and #1228, opencost#882: the books leave things out.

There: what is said of a cluster's cost is the machine's price alone: no disk, no address, no
storage; and a spot price that was wrong for hours makes the rest wrong, too.
Here: a run's bill is recomputed by hand, line by line: compute, disk, public address, S3 and
transfer. It agrees with what the cloud metered by itself; and a spot box is reserved and billed at
the on-demand price, which no spot price exceeds.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal

import pytest

from orchestrator.catalog import load_catalog
from orchestrator.localcloud.meter import Kind
from orchestrator.plan import RESULTS
from orchestrator.progress import run_spans
from tests.incidents.scene import ONE_BOX, opened

SPOT = ONE_BOX.replace("instance: g6.xlarge", "instance: g6.xlarge, spot: true")
# us-east-1: g6.xlarge on demand, gp3 a GB-month, a public address, S3 a GB-month, out, 1,000 puts.
ON_DEMAND, GP3, ADDRESS = Decimal("0.8048"), Decimal("0.08"), Decimal("0.005")
DISK_GB, MONTH_H, MICRO = 200, 730, Decimal("0.000001")
METERED = {Kind.COMPUTE: "compute", Kind.EBS: "disk", Kind.IPV4: "address"}
AGREE = Decimal("0.01")


@pytest.mark.parametrize("text", [ONE_BOX, SPOT], ids=["on-demand", "spot"])
def test_every_line_of_a_run_s_bill_is_what_a_person_computes_and_what_the_cloud_metered(
    text: str,
) -> None:
    with opened(text) as scene:
        runner = scene.begin()
        runner.drive()
        spans = run_spans(runner.record, runner.log.read(), runner.instances())
        bill = runner.purse.bill(spans, scene.world.time.now())
        lines = {line.kind: line for line in bill.lines}
        assert set(lines) == {"compute", "disk", "address", "s3"}
        (box,) = scene.instances()
        assert box.ended_at is not None
        hours = Decimal(int((box.ended_at - box.launched_at).total_seconds())) / 3600
        by_hand = {
            "compute": ON_DEMAND * hours,
            "disk": DISK_GB * GP3 * hours / MONTH_H,
            "address": ADDRESS * hours,
        }
        for kind, usd in by_hand.items():
            assert lines[kind].usd == usd.quantize(MICRO, ROUND_CEILING), kind
        metered = scene.world.cloud.bill_lines(scene.run_id)
        for kind, name in METERED.items():
            said = sum(Decimal(item["usd"]) for item in metered if item["kind"] == kind)
            assert abs(said - lines[name].usd) <= AGREE * lines[name].usd, name
        assert "pulled once" in lines["s3"].detail  # transfer out is in it
        assert lines["s3"].usd == runner.purse.ledger().settled[RESULTS] > 0
        assert bill.total_usd <= scene.plan.worst_case_usd


def test_a_worst_case_has_every_line_too_and_a_spot_box_s_is_the_on_demand_one() -> None:
    with opened(ONE_BOX) as scene, opened(SPOT) as spot:
        box = scene.plan.box("one")
        assert box.price_usd_per_hour == ON_DEMAND
        assert box.worst_case_usd == spot.plan.box("one").worst_case_usd
        life_h = Decimal(12 + 1 + 3) / 60  # hours, the cloud's margin, its schedule's lateness
        beside_h = life_h + Decimal(10) / 60  # a volume outlives its instance
        worst = ON_DEMAND * life_h + (DISK_GB * GP3 / MONTH_H + ADDRESS) * beside_h
        assert box.worst_case_usd == worst.quantize(Decimal("0.01"), ROUND_CEILING)
        kept, out = load_catalog().storage("us-east-1"), scene.plan.results_gb
        assert scene.plan.results_usd > out * (kept.s3_gb_month + kept.transfer_out_gb)
        assert scene.plan.worst_case_usd == box.worst_case_usd + scene.plan.results_usd
