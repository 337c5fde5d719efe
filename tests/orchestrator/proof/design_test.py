"""What a proof is going to cost and to boot, before anything is created."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from orchestrator.catalog import load_catalog
from orchestrator.errors import CatalogError, OverCap
from orchestrator.plan import Plan
from orchestrator.proof.design import (
    AGENT,
    AWS,
    BOXES,
    GUARD,
    HALTED,
    LOCAL,
    SCHEDULE,
    SWEEP,
    TIMER,
    Timing,
    proof_plan,
)
from orchestrator.proof.scripts import script_of, wedged_once_armed

NOW = datetime(2026, 11, 29, 19, 0, tzinfo=UTC)
CATALOG = load_catalog()


def plan(region: str = "us-east-1", cap: str = "0.10", timing: Timing = AWS) -> Plan:
    return proof_plan("aws", region, CATALOG, NOW, timing, Decimal(cap))


def script(box: str) -> str:
    return script_of(
        plan(), box, run_id="r", bucket="b", payload_sha256="0" * 64, poweroff_command="poweroff"
    )


@pytest.mark.parametrize("region", ["us-east-1", "us-west-2", "eu-central-1", "ap-south-1"])
def test_the_worst_case_is_under_the_default_cap_and_a_cent_or_two_is_expected(
    region: str,
) -> None:
    made = plan(region)
    assert Decimal("0.03") < made.worst_case_usd <= Decimal("0.10")
    assert made.expected_usd < Decimal("0.03")


def test_the_worst_case_counts_the_boxes_to_the_end_of_their_nets_with_disk_and_address() -> None:
    box = plan().box(TIMER)
    hours = Decimal(AWS.net + 180) / 3600
    compute = hours * Decimal("0.0052")
    beside = (hours + Decimal(1) / 6) * (Decimal("0.005") + 8 * Decimal("0.08") / 730)
    assert box.worst_case_usd == pytest.approx(compute + beside)
    assert plan().box(AGENT).worst_case_usd > box.worst_case_usd + Decimal("0.03")  # bursts


def test_a_cap_below_the_worst_case_is_refused_with_the_numbers() -> None:
    with pytest.raises(OverCap, match=r"of the cap of \$0\.0300 only"):
        plan(cap="0.03")


def test_a_region_without_a_price_is_refused() -> None:
    with pytest.raises(CatalogError, match=r"no price for t3\.nano in sa-east-1"):
        plan("sa-east-1")


@pytest.mark.parametrize("timing", [AWS, LOCAL])
def test_each_box_is_left_to_one_enforcer_with_a_net_far_below(timing: Timing) -> None:
    made = plan(timing=timing)
    last_word = max(box.poweroff_at for box in made.boxes) + timedelta(seconds=timing.ends_late)
    for name in set(BOXES) - {SCHEDULE, HALTED}:
        assert made.box(name).cloud_at > last_word
    assert timing.foreign + timing.fires_late <= timing.drain, "the sweep's box outlives it"
    assert timing.expiry <= timing.drain


def test_only_the_box_of_the_agent_boots_all_of_a_runs_user_data() -> None:
    assert "orchestrator.box" in script(AGENT)
    for box in set(BOXES) - {AGENT}:
        assert "orchestrator.box" not in script(box)
        assert script(box).endswith("while :; do sleep 5; done\n")


def test_the_box_of_the_timer_arms_it_as_every_run_does_and_then_asks_nobody() -> None:
    head = script(TIMER).removesuffix("\nwhile :; do sleep 5; done\n")
    assert script(AGENT).replace(f"Box {AGENT}", f"Box {TIMER}").startswith(head[:60])
    assert "end_box" in head
    assert "shutdown -P" in head
    assert "systemctl enable --now" in head
    assert "fetch" not in head


@pytest.mark.parametrize("box", [SCHEDULE, GUARD, HALTED, SWEEP])
def test_the_other_boxes_have_nothing_that_could_power_them_off(box: str) -> None:
    for word in ("poweroff", "shutdown", "end_box", "systemctl"):
        assert word not in script(box)


@pytest.mark.parametrize("box", BOXES)
def test_every_script_is_one_that_bash_can_read(box: str) -> None:
    subprocess.run(["bash", "-n"], input=script(box), text=True, check=True)


def test_user_data_that_does_something_before_it_arms_is_refused() -> None:
    for text in ("#!/bin/bash\n", "python3 x\nend_box\nexport AWS_REGION=x\n"):
        with pytest.raises(ValueError, match="arming"):
            wedged_once_armed(text)
