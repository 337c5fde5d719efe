"""The catalog: what DescribeInstanceTypes says, with a dated price where there is one."""

from __future__ import annotations

import importlib.util
import json
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.catalog import DATA, load_catalog
from orchestrator.errors import CatalogError

CATALOG = load_catalog()
SIZES = ("xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "16xlarge", "24xlarge", "48xlarge")


def test_all_sizes_of_g6_and_g6e_are_known() -> None:
    assert set(CATALOG.names) == {f"{family}.{size}" for family in ("g6", "g6e") for size in SIZES}


def test_the_two_types_of_the_gpu_proof_are_what_ec2_reports() -> None:
    l40s, l4 = CATALOG.instance("g6e.4xlarge"), CATALOG.instance("g6.4xlarge")

    assert (l40s.gpu, l40s.gpus, l40s.gpu_memory_mib) == ("L40S", 1, 45776)
    assert (l40s.vcpus, l40s.memory_gib, l40s.nvme_gb, l40s.network) == (
        16,
        128,
        600,
        "20 Gigabit",
    )
    assert (l4.gpu, l4.gpus, l4.gpu_memory_mib, l4.vcpus) == ("L4", 1, 22888, 16)
    assert l40s.quota_code == l4.quota_code == "L-DB2E81BA"


def test_the_small_box_of_the_kill_proof_has_a_price_but_no_runbook_may_name_it() -> None:
    nano = CATALOG.instance("t3.nano")

    assert (nano.gpu, nano.gpus, nano.vcpus, nano.memory_gib) == ("", 0, 2, 1)
    assert nano.quota_code == "L-1216C47A"
    for region in ("us-east-1", "us-east-2", "us-west-2"):
        assert CATALOG.price("t3.nano", region).usd_per_hour == Decimal("0.0052")
    assert "t3.nano" not in CATALOG.names


def test_zones_are_those_of_the_region_that_offer_the_type() -> None:
    assert CATALOG.zones("g6e.4xlarge", "us-east-1") == tuple(f"us-east-1{z}" for z in "abcd")
    assert "us-east-1f" in CATALOG.zones("g6.4xlarge", "us-east-1")


def test_a_price_is_exact_dated_and_says_where_it_is_from() -> None:
    price = CATALOG.price("g6e.4xlarge", "us-east-1")

    assert price.usd_per_hour == Decimal("3.00424")
    assert price.as_of == date(2026, 11, 29)
    assert "skypilot-catalog" in price.source


def test_every_priced_type_is_one_that_its_region_offers() -> None:
    for region, prices in CATALOG.prices.instances.usd_per_hour.items():
        for name, usd in prices.items():
            assert CATALOG.zones(name, region)
            assert usd > 0


def test_a_spot_price_on_record_is_dated_and_below_the_list_price() -> None:
    assert "dearest zone" in CATALOG.prices.spot.source
    for region, prices in CATALOG.prices.spot.usd_per_hour.items():
        for name in prices:
            spot = CATALOG.spot(name, region)
            assert spot is not None
            assert 0 < spot < CATALOG.price(name, region).usd_per_hour
    assert CATALOG.spot("g6.4xlarge", "us-east-1") == Decimal("0.6933")
    assert CATALOG.spot("g6.48xlarge", "us-east-1") is None


def test_a_bigger_box_of_a_region_is_never_cheaper_per_gpu_family() -> None:
    for prices in CATALOG.prices.instances.usd_per_hour.values():
        for family in ("g6.", "g6e."):
            one_gpu = [family + size for size in ("xlarge", "2xlarge", "4xlarge", "8xlarge")]
            listed = [prices[name] for name in one_gpu if name in prices]
            assert listed == sorted(listed)


def test_no_region_is_cheaper_than_its_storage_ceiling_says() -> None:
    ceiling, listed = CATALOG.storage("eu-north-1"), CATALOG.storage("us-east-1")

    assert "ceiling" in ceiling.source
    assert ceiling.gp3_gb_month >= listed.gp3_gb_month
    assert ceiling.transfer_out_gb >= listed.transfer_out_gb


def test_a_type_offered_without_a_price_names_the_regions_that_have_one() -> None:
    with pytest.raises(CatalogError, match=r"no price for g6e\.4xlarge in ap-south-1") as refused:
        CATALOG.price("g6e.4xlarge", "ap-south-1")

    assert "us-west-2" in refused.value.hint


def test_a_misspelled_type_is_answered_with_the_nearest() -> None:
    with pytest.raises(CatalogError) as refused:
        CATALOG.instance("g6.4xlarg")

    assert "Did you mean 'g6.4xlarge'?" in refused.value.hint


def test_the_committed_table_is_the_one_that_the_tool_builds() -> None:
    tool = Path(__file__).parents[2] / "tools" / "build_instances.py"
    spec = importlib.util.spec_from_file_location("build_instances", tool)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    assert module.build() == json.loads((DATA / "instances.json").read_text("utf-8"))
