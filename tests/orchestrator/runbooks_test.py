"""The committed runbooks, their documentation, and the example script, as they are."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest
import yaml

from orchestrator.catalog import load_catalog
from orchestrator.fields import Frozen
from orchestrator.payload import box_spec, build_payload
from orchestrator.pins import PINS_FOLDER, known_pins
from orchestrator.plan import Plan, make_plan
from orchestrator.programs import PROGRAMS
from orchestrator.quote import Cloud
from orchestrator.render import render_user_data
from orchestrator.runbook import load_runbook
from orchestrator.spec import (
    BoxSpec,
    JobInput,
    JobSpec,
    RangeSpec,
    ReferenceSpec,
    RunbookSpec,
)

ROOT = Path(__file__).parents[2]
RUNBOOKS = sorted((ROOT / "runbooks").glob("*.yaml"))
DOCUMENT = ROOT / "docs" / "runbooks.md"
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
SCRIPT = ROOT / "runbooks" / "examples" / "own-script" / "count.py"


@cache
def plan_of(name: str, cloud: Cloud = "local") -> Plan:
    runbook = load_runbook(ROOT / "runbooks" / f"{name}.yaml")
    return make_plan(runbook, now=NOW, catalog=load_catalog(), cloud=cloud)


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda path: path.stem)
def test_every_committed_runbook_plans_under_its_own_cap(path: Path) -> None:
    plan = plan_of(path.stem)

    assert plan.name == path.stem
    assert plan.worst_case_usd <= plan.cap_usd


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda path: path.stem)
def test_every_committed_runbook_is_in_the_readme_with_its_boxes_and_jobs(path: Path) -> None:
    plan = plan_of(path.stem)
    readme = (ROOT / "runbooks" / "README.md").read_text("utf-8")

    (row,) = [line for line in readme.splitlines() if f"[{path.name}]" in line]
    assert row.endswith(f"| {len(plan.boxes)} | {len(plan.jobs)} |")


def test_the_rehearsal_stands_in_for_the_l40s_and_the_l4() -> None:
    plan = plan_of("rehearsal")

    assert [(box.instance, box.gpu) for box in plan.boxes] == [
        ("g6e.4xlarge", "L40S"),
        ("g6.4xlarge", "L4"),
    ]
    assert plan.job("outage-seed").needs == ("sft",)


def test_the_field_program_names_every_program() -> None:
    said = JobSpec.model_fields["program"].description or ""

    assert said.removeprefix("One of our programs: ").rstrip(".").split(", ") == [*PROGRAMS]


SEED_RUNS = {"s1", "s3", "s2", "s6", "run-a", "run-l", "run-d", "s7b", "s8b", "s8c", "s9"}


def test_the_proof_has_every_run_of_the_first_one_beside_what_it_measured() -> None:
    plan = plan_of("gpu-proof", "aws")
    outages = {"outage-before", "outage-after"}

    assert SEED_RUNS | outages | {"warm", "outage-continued"} == {job.name for job in plan.jobs}
    assert all(plan.job(name).reference for name in SEED_RUNS | outages)
    assert [job.name for job in plan.jobs if "warm" in job.needs] == ["run-a", "run-l"]


def test_the_proof_is_expected_to_cost_16_dollars_and_can_cost_no_40() -> None:
    plan = plan_of("gpu-proof", "aws")

    assert plan.expected_usd <= 16
    assert plan.worst_case_usd < plan.cap_usd == 40
    assert plan.spot is not None
    assert plan.spot.expected_usd is not None
    assert plan.spot.expected_usd < plan.expected_usd


def test_the_proofs_boxes_of_a_kind_end_about_together_and_before_they_drain() -> None:
    plan = plan_of("gpu-proof", "aws")
    ends = {
        box.name: max(job.expected_end_hours or Decimal(0) for job in plan.jobs_of(box.name))
        for box in plan.boxes
    }

    assert {plan.box(job.box).gpu for job in plan.jobs if job.name == "run-a"} == {"L40S"}
    assert {plan.box(job.box).gpu for job in plan.jobs if job.name in {"run-l", "s1"}} == {"L4"}
    assert abs(ends["l4-a"] - ends["l4-b"]) < Decimal("0.25")
    for box in plan.boxes:
        drain = (box.drain_at - plan.planned_at).total_seconds() / 3600
        assert float(ends[box.name]) + 0.5 < drain


@pytest.mark.parametrize("name", ["smoke", "gpu-smoke"])
def test_a_first_look_costs_under_two_dollars_whoever_dies(name: str) -> None:
    assert plan_of(name, "aws").worst_case_usd < 2


def test_the_proof_renders_for_aws_with_its_gpu_pins(tmp_path: Path) -> None:
    plan = plan_of("gpu-proof", "aws")
    for box in plan.boxes:
        script = render_user_data(
            plan, box.name, run_id="r", bucket="gpurun-1-us-east-1", payload_sha256="0" * 64
        )
        spec = box_spec(plan, box.name, run_id="r", bucket="gpurun-1-us-east-1")
        assert "poweroff" in script
        assert spec["pins"]["unsloth"]["gpu"]
    payload = build_payload(plan, "r", "b", host_private="key", folder=tmp_path)
    with tarfile.open(payload.path) as packed:
        assert "pins/unsloth.txt" in packed.getnames()


@pytest.mark.parametrize(
    "model", [RunbookSpec, BoxSpec, JobSpec, JobInput, RangeSpec, ReferenceSpec]
)
def test_every_field_of_a_runbook_is_described(model: type[Frozen]) -> None:
    bare = [name for name, field in model.model_fields.items() if not field.description]

    assert bare == []


def test_the_documents_tables_are_those_that_the_models_make() -> None:
    path = ROOT / "tools" / "runbook_fields.py"
    spec = importlib.util.spec_from_file_location("runbook_fields", path)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    text = DOCUMENT.read_text("utf-8")

    assert tool.with_tables(text) == text


def test_the_documents_runbook_plans(tmp_path: Path) -> None:
    text = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)[0]
    path = tmp_path / "mine.yaml"
    path.write_text(text)

    plan = make_plan(load_runbook(path), now=NOW, catalog=load_catalog(), cloud="local")

    assert [job.name for job in plan.jobs] == ["warm", "learn"]


def test_the_documents_own_script_is_the_one_that_smoke_runs() -> None:
    text = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)[1]
    smoke = yaml.safe_load((ROOT / "runbooks" / "smoke.yaml").read_text("utf-8"))

    assert yaml.safe_load(text)["jobs"] == smoke["jobs"]


def test_the_programs_of_a_runbook_are_those_that_can_be_asked() -> None:
    code = "from agent_env.training.config import CONFIGS; print(*CONFIGS)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert set(said.stdout.split()) == set(PROGRAMS)


def test_every_pins_file_is_there_and_locks_what_its_short_form_asks_for() -> None:
    for entry in known_pins().values():
        locked = (PINS_FOLDER / entry.file).read_text("utf-8")
        asked = (PINS_FOLDER / entry.file).with_suffix(".in").read_text("utf-8")
        for name in re.findall(r"^([A-Za-z0-9._-]+)==", asked, re.MULTILINE):
            assert re.search(rf"^{re.escape(name)}==", locked, re.MULTILINE | re.IGNORECASE), name


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    env = {
        **os.environ,
        "GPURUN_OUT": str(folder / "out"),
        "GPURUN_METRICS": str(folder / "metrics.jsonl"),
    }
    command = [sys.executable, str(SCRIPT), *options]
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)


def test_the_example_script_stops_at_sigterm_and_resumes_where_it_was(tmp_path: Path) -> None:
    with start(tmp_path, "--to", "1000", "--pause", "0.01") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "train 1 of 1000\n"
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
    assert process.returncode == 143
    stopped = int(rest.split()[-1])

    with start(tmp_path, "--to", str(stopped + 2), "--pause", "0") as process:
        said, _ = process.communicate(timeout=20)

    assert process.returncode == 0
    assert said.splitlines()[0] == f"train {stopped + 1} of {stopped + 2}"
    last = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["kind"], last["counted"]) == ("final", stopped + 2)
