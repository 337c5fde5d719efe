"""Plans: hand-computed money, ordered deadlines, and nothing touched to make one."""

from __future__ import annotations

import io
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.catalog import load_catalog
from orchestrator.cli.consent import at_most
from orchestrator.console.plan import plan_view
from orchestrator.console.terminal import make_console
from orchestrator.errors import CatalogError
from orchestrator.plan import RESULTS, Plan, Range, make_plan, replan_deadlines
from orchestrator.quote import SLACK, compute_usd
from orchestrator.runbook import load_runbook
from tests.orchestrator.runbook_text import spoil, write_runbook

NOW = datetime(2026, 12, 1, 12, 0, 0, 500_000, tzinfo=UTC)
START = NOW.replace(microsecond=0)

ONE_BOX = """\
name: one
cap_usd: 40
regions: [us-east-1]
boxes:
  l40s:
    instance: g6e.4xlarge
    hours: 7
jobs:
  train:
    box: l40s
    command: sleep 1
    hours: 103m
"""


def plan_of(folder: Path, text: str, *, cloud: str = "local", cap: str = "1000") -> Plan:
    runbook = load_runbook(write_runbook(folder, text))
    return make_plan(
        runbook,
        now=NOW,
        catalog=load_catalog(),
        cloud="aws" if cloud == "aws" else "local",
        cap_usd=Decimal(cap),
    )


def test_the_worst_case_of_seven_hours_is_the_one_computed_by_hand(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, ONE_BOX)

    # 7 h + 10 min margin + 3 min slack at 3.00424 = 21.680599
    # 200 GB gp3 for 10 min more: 200 x 0.08 x 7.38333 / 730 = 0.161826; IPv4 0.036917
    assert plan.box("l40s").worst_case_usd == Decimal("21.88")
    # 5 GB: a month 0.115, one pull 0.45; 25,980 + 20,000 requests 0.2299
    # Reports, a tick being 1 s: 26,040 heartbeats of 9 KiB, 26,080 statuses of 8 KiB and 4,390
    # consoles of 256 KiB, 1.604 GB for 92 days at 0.023: 0.1116; their 56,510 requests 0.2826
    # A guard that has to act: 0.006
    assert plan.results_usd == Decimal("1.20")
    assert plan.worst_case_usd == Decimal("23.08")
    # On AWS, where a tick is 10 s: 0.0116 and 0.0285
    assert plan_of(tmp_path, ONE_BOX, cloud="aws").results_usd == Decimal("0.85")


def test_the_expected_price_is_boot_and_the_jobs_own_estimate(tmp_path: Path) -> None:
    box = plan_of(tmp_path, ONE_BOX, cloud="aws").box("l40s")

    # 103 min of training, as in the run that this project was made for, and 6 min of boot:
    # 1.816667 h at 3.00424 = 5.457703; gp3 0.039818; IPv4 0.009083
    assert box.expected_usd == Decimal("5.51")
    assert box.expected_hours == Decimal("1.8167")


def test_the_same_hours_are_priced_on_spot_beside_it(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, ONE_BOX, cloud="aws")

    # 1.816667 h at 1.1536, the dearest zone's, = 2.095707; gp3 0.039818; IPv4 0.009083
    assert plan.spot is not None
    beside = plan.expected_usd - plan.box("l40s").expected_usd
    assert plan.spot.expected_usd == beside + Decimal("2.15")
    assert f"on spot: expected ${plan.spot.expected_usd} at the prices of 2026-11-30" in shown(
        plan
    )


def test_a_spot_price_that_is_not_on_record_is_never_guessed(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, ONE_BOX.replace("us-east-1", "eu-central-1"), cloud="aws")

    assert plan.spot is not None
    assert plan.spot.expected_usd is None
    assert "on spot: no price on record in eu-central-1 for g6e.4xlarge" in shown(plan)


def test_a_plan_of_an_older_version_is_still_shown(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, ONE_BOX)
    new = {"expected_start_hours", "expected_end_hours", "reference"}
    old = plan.model_dump(mode="json", exclude={"spot": True, "jobs": {"__all__": new}})
    told = shown(Plan.model_validate(old))

    assert "on spot" not in told
    assert "train" in told


def test_a_big_disk_is_paid_for_until_its_instance_is_terminated(tmp_path: Path) -> None:
    big = ONE_BOX.replace("hours: 7\n", "hours: 7\n    disk_gb: 16000\n")

    # compute 21.680599, IPv4 0.036917, 16,000 x 0.08 x 7.38333 / 730 = 12.946119
    assert plan_of(tmp_path, big).box("l40s").worst_case_usd == Decimal("34.67")


def test_deadlines_are_ordered_and_the_last_is_paid_for(tmp_path: Path) -> None:
    box = plan_of(tmp_path, ONE_BOX).box("l40s")

    assert box.drain_at == START + timedelta(hours=6, minutes=45)
    assert box.poweroff_at == START + timedelta(hours=7)
    assert box.cloud_at == START + timedelta(hours=7, minutes=10)
    paid = compute_usd(box.price_usd_per_hour, box.cloud_at + SLACK - START)
    assert paid < box.worst_case_usd


def test_deadlines_of_seconds_are_possible(tmp_path: Path) -> None:
    text = ONE_BOX.replace("hours: 7\n", "hours: 0.01\n    drain: 5s\n    cloud_margin: 60s\n")

    box = plan_of(tmp_path, text.replace("    hours: 103m\n", "")).box("l40s")

    assert (box.drain_at - START).total_seconds() == 31
    assert (box.poweroff_at - START).total_seconds() == 36
    assert (box.cloud_at - START).total_seconds() == 96


def test_the_worst_case_is_that_of_the_dearest_fallback(tmp_path: Path) -> None:
    fallback = ONE_BOX.replace(
        "hours: 7\n", "hours: 7\n    fallbacks: [g6e.8xlarge, g6.4xlarge]\n"
    )

    plan = plan_of(tmp_path, fallback)

    box = plan.box("l40s")
    assert box.price_usd_per_hour == Decimal("3.00424")
    assert box.worst_price_usd_per_hour == Decimal("4.52856")
    assert box.worst_case_usd == Decimal("32.88")
    assert box.vcpus == 32
    assert any("fallback g6.4xlarge" in warning for warning in plan.warnings)


def test_reservations_add_up_to_the_worst_case_to_the_cent(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, spoil("cap_usd: 10", "cap_usd: 11"))

    assert set(plan.reservations()) == {"l40s", "l4", RESULTS}
    assert sum(plan.reservations().values()) == plan.worst_case_usd


def test_the_quota_needed_is_that_of_all_boxes_together(tmp_path: Path) -> None:
    assert plan_of(tmp_path, spoil("cap_usd: 10", "cap_usd: 11")).quotas == {"L-DB2E81BA": 32}


def test_a_plan_is_read_back_from_its_json_as_it_was(tmp_path: Path) -> None:
    text = spoil("retries: 2", "expect: {rise: {min: 0.15}}")
    plan = plan_of(tmp_path, text)

    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    assert plan.job("grpo").expect == {"rise": Range(min=Decimal("0.15"))}


def test_inputs_imply_needs(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, spoil("    needs: [sft]\n", ""))

    assert plan.job("grpo").needs == ("sft",)
    assert plan.job("grpo").inputs["model"].path == "out/model"


def test_a_workdirs_size_and_files_are_in_the_plan(tmp_path: Path) -> None:
    job = plan_of(tmp_path, spoil("cap_usd: 10", "cap_usd: 11")).job("own")

    assert job.workdir == str(tmp_path / "own")
    assert (job.workdir_files, job.workdir_bytes) == (1, len("print('trained')\n"))
    assert job.pins == "cpu"


def test_a_box_runs_its_jobs_one_after_the_other_and_waits_for_other_boxes(
    tmp_path: Path,
) -> None:
    text = spoil("command: python3", "needs: [grpo]\n    hours: 5m\n    command: python3")
    plan = plan_of(tmp_path, text.replace("    retries: 2", "    hours: 10m"))

    # local boot 45 s; sft 5 min, grpo 10 min; own waits on the other box, then 5 min more
    assert plan.box("l40s").expected_hours == Decimal("0.2625")
    assert plan.box("l4").expected_hours == Decimal("0.3458")


def test_jobs_that_need_nothing_of_each_other_still_share_their_box(tmp_path: Path) -> None:
    more = "  other:\n    box: l40s\n    command: sleep 2\n    hours: 17m\n"

    # local boot 45 s, then 103 and 17 minutes
    assert plan_of(tmp_path, ONE_BOX + more).box("l40s").expected_hours == Decimal("2.0125")


def test_a_job_without_an_estimate_is_expected_to_take_all_its_box_has(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, ONE_BOX.replace("    hours: 103m\n", ""))

    assert plan.job("train").expected_hours == Decimal("6.7500")


def test_a_later_start_moves_the_deadlines_and_nothing_else(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, ONE_BOX)

    later = replan_deadlines(plan, NOW + timedelta(minutes=9))

    shift = later.box("l40s").poweroff_at - plan.box("l40s").poweroff_at
    assert shift == later.planned_at - plan.planned_at == timedelta(minutes=9)
    assert later.worst_case_usd == plan.worst_case_usd
    assert replan_deadlines(later, plan.planned_at) == plan


def test_deadlines_are_in_utc_wherever_the_caller_is(tmp_path: Path) -> None:
    runbook = load_runbook(write_runbook(tmp_path, ONE_BOX))
    there = NOW.astimezone(timezone(timedelta(hours=9)))

    plan = make_plan(runbook, now=there, catalog=load_catalog(), cloud="local")

    assert plan.planned_at == START
    assert plan.box("l40s").poweroff_at.utcoffset() == timedelta(0)


def test_the_first_region_that_offers_everything_is_taken(tmp_path: Path) -> None:
    text = ONE_BOX.replace("[us-east-1]", "[eu-west-2, eu-north-1, us-east-1]")

    plan = plan_of(tmp_path, text, cloud="aws")

    assert plan.region == "eu-north-1"
    assert plan.warnings == ("eu-west-2 doesn't offer g6e.4xlarge; eu-north-1 is taken",)
    assert plan.box("l40s").price_usd_per_hour == Decimal("3.18666")
    assert plan.box("l40s").zones["g6e.4xlarge"] == ("eu-north-1a", "eu-north-1b")


def test_no_region_that_offers_everything_is_refused_with_every_reason(tmp_path: Path) -> None:
    text = ONE_BOX.replace("[us-east-1]", "[eu-west-2, ap-south-1]")

    with pytest.raises(
        CatalogError, match=r"eu-west-2 doesn't offer .*; no price for .*ap-south-1"
    ):
        plan_of(tmp_path, text)


def test_pins_that_need_a_gpu_are_told_of_on_the_local_cloud_only(tmp_path: Path) -> None:
    text = ONE_BOX.replace("regions", "pins: unsloth\nregions")

    text += "  more: {box: l40s, command: x, pins: trl}\n"
    told = [words for words in plan_of(tmp_path, text).warnings if "need a GPU" in words]
    assert told == [
        "jobs train, more: pins unsloth and trl need a GPU, which a local box hasn't got"
    ]
    assert plan_of(tmp_path, text, cloud="aws").warnings == ()


def test_pins_that_leave_something_out_say_what_that_costs(tmp_path: Path) -> None:
    text = ONE_BOX.replace("regions", "pins: skyrl\nregions")

    warned = [w for w in plan_of(tmp_path, text, cloud="aws").warnings if "pins skyrl" in w]
    assert len(warned) == 3
    assert warned[0].startswith("pins skyrl come without flash-attn: the FSDP workers import it")
    free = plan_of(tmp_path, text.replace("pins: skyrl", "pins: cpu"), cloud="aws")
    assert free.warnings == (), "gradio costs a job nothing"


@pytest.mark.parametrize(
    ("where", "is_told"), [("beside/it", True), ("typed/here", True), ("org/some", False)]
)
def test_a_model_s_name_that_is_a_folder_here_is_told_as_the_box_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, *, is_told: bool
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "typed" / "here").mkdir(parents=True)
    (tmp_path / "beside" / "it").mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    model = f"model: {where}, learning_rate: 1e-5, completion_tokens: 512"
    text = ONE_BOX.replace("regions", "pins: trl\nregions")
    text += f"  warm: {{box: l40s, program: sft, config: {{{model}}}}}\n"
    told = " ".join(plan_of(tmp_path, text, cloud="aws").warnings)
    assert ("jobs.warm: the box takes model" in told) == is_told
    assert (f"nothing of {tmp_path}/" in told) == is_told


@pytest.mark.parametrize(
    ("config", "missing"),
    [
        ("model: org/some", "learning_rate and completion_tokens"),
        ("model: org/some, learning_rate: 1e-5", "completion_tokens"),
        ("model: org/some, learning_rate: 1e-5, completion_tokens: 512", None),
        ("model: tiny", None),
        ("steps: 3", None),
    ],
)
def test_a_real_model_with_the_tiny_ones_defaults_is_told(
    tmp_path: Path, config: str, missing: str | None
) -> None:
    text = ONE_BOX.replace("regions", "pins: trl\nregions")
    text += f"  warm: {{box: l40s, program: sft, config: {{{config}}}}}\n"

    told = f"jobs.warm: {missing} left out: the default is made for the tiny model"
    warnings = plan_of(tmp_path, text, cloud="aws").warnings
    assert warnings == (() if missing is None else (told,))


def test_a_command_without_pins_is_told_what_it_sees_here_and_on_aws(tmp_path: Path) -> None:
    words = "job train has no pins: here it sees this machine's Python packages"
    pinned = ONE_BOX.replace("regions", "pins: cpu\nregions")

    assert plan_of(tmp_path, ONE_BOX).warnings == (f"{words}, on AWS only the image's",)
    assert plan_of(tmp_path, ONE_BOX, cloud="aws").warnings == ()
    assert words not in " ".join(plan_of(tmp_path, pinned).warnings)


def shown(plan: Plan) -> str:
    out = io.StringIO()
    make_console(file=out).print(plan_view(plan))
    return " ".join(out.getvalue().split())


def test_the_plan_shows_what_its_pins_download_and_take_on_a_disk(tmp_path: Path) -> None:
    words = shown(plan_of(tmp_path, ONE_BOX.replace("regions", "pins: unsloth\nregions")))

    assert "pins unsloth: up to 4.1 GB to download, 12.8 GB of disk" in words
    assert "GB to download" not in shown(plan_of(tmp_path, ONE_BOX))


def test_the_plan_shows_where_secrets_are_kept_and_which_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = "secrets: {HERE_KEY: env, GONE_KEY: env, HF_TOKEN: 'ssm:/me/hf'}\n"
    monkeypatch.setenv("HERE_KEY", "hunter2")
    monkeypatch.delenv("GONE_KEY", raising=False)

    words = shown(plan_of(tmp_path, ONE_BOX.replace("boxes:", f"{secrets}boxes:")))

    assert (
        "secrets: HERE_KEY from this machine, GONE_KEY from this machine (not set here), "
        "HF_TOKEN from ssm:/me/hf"
    ) in words
    assert "hunter2" not in words


def test_the_plan_shows_a_stall_that_was_given_and_no_other(tmp_path: Path) -> None:
    text = ONE_BOX.replace("hours: 103m", "hours: 103m\n    stall: 20m")

    frozen = "job train counts as frozen after 0:20:00 without a new step"
    assert frozen in shown(plan_of(tmp_path, text))
    assert "frozen" not in shown(plan_of(tmp_path, ONE_BOX))


def test_what_is_asked_for_is_the_plan_s_and_the_cap_only_where_the_run_may_move(
    tmp_path: Path,
) -> None:
    both = ONE_BOX.replace("[us-east-1]", "[us-east-1, us-west-2]")

    one, two = (plan_of(tmp_path, text, cloud="aws", cap="40") for text in (ONE_BOX, both))

    assert at_most(one) == f"${one.worst_case_usd}"
    assert at_most(two) == (
        f"${two.worst_case_usd} in us-east-1; up to the cap of $40 if it moves to another region"
    )


def test_a_box_of_many_days_is_told_of(tmp_path: Path) -> None:
    warnings = plan_of(tmp_path, ONE_BOX.replace("hours: 7", "hours: 200")).warnings

    assert any("8 days" in warning for warning in warnings)


@given(
    hours=st.decimals("0.01", "100", places=2),
    margin=st.integers(1, 3600),
    seconds=st.integers(0, 400_000),
)
def test_no_life_within_the_deadlines_costs_more_than_its_reservation(
    hours: Decimal, margin: int, seconds: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    margins = f"hours: {hours}\n    drain: 1s\n    cloud_margin: {margin}s\n"
    text = ONE_BOX.replace("hours: 7\n", margins).replace("    hours: 103m\n", "")

    box = plan_of(tmp_path_factory.mktemp("plan"), text, cap="100000").box("l40s")

    life = min(timedelta(seconds=seconds), box.cloud_at + SLACK - START)
    paid = compute_usd(box.worst_price_usd_per_hour, life)
    assert paid <= box.worst_case_usd


@pytest.mark.parametrize(
    ("value", "holds"),
    [(0.15, True), (0.4, True), (0.149, False), (0.41, False), (float("nan"), False)],
)
def test_a_range_includes_its_ends_and_never_nan(value: float, holds: bool) -> None:
    expected = Range(min=Decimal("0.15"), max=Decimal("0.4"))

    assert expected.holds(value) is holds


def test_planning_loads_neither_a_cloud_library_nor_a_console_one() -> None:
    code = (
        "import sys, orchestrator.plan, orchestrator.runbook, orchestrator.settings\n"
        "heavy = {'boto3', 'botocore', 'rich', 'typer', 'jinja2', 'moto', 'torch'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert said.stdout.strip() == "[]"
