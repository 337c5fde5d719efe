"""Measured beside reference: a verdict for what was measured, and none for what wasn't.

`metrics/` holds files that `grpo` and `evaluate` wrote on a CPU, with the tiny model.
"""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator import cli
from orchestrator.aws.bucket import Bucket
from orchestrator.box.progress import Progress
from orchestrator.console.terminal import make_console
from orchestrator.console.views import result_view
from orchestrator.errors import RunbookError
from orchestrator.opened import Opened
from orchestrator.plan import Plan, Reference
from orchestrator.report import write_report
from orchestrator.run import RunRecord
from orchestrator.runbook import load_runbook
from orchestrator.verdicts import Compared, compared

from .runbook_text import spoil, write_runbook
from .runner_test import begun, clock, rules, session

__all__ = ["begun", "clock", "rules", "session"]

METRICS = Path(__file__).parent / "metrics"


def final(name: str) -> dict[str, Any]:
    """The final numbers of a metrics file as a box reads and reports them."""
    progress = Progress(METRICS / f"{name}.jsonl")
    progress.read()
    return progress.metrics


def reference(value: str, tolerance: str) -> Reference:
    return Reference(value=Decimal(value), tolerance=Decimal(tolerance), source="seed run A, L40S")


def row(value: str, tolerance: str, number: str, said: dict[str, Any]) -> Compared:
    (found,) = compared("grpo", {number: reference(value, tolerance)}, said, done=True)
    return found


@pytest.mark.parametrize(
    ("value", "tolerance", "verdict"),
    [
        ("-0.10019", "0", "as the reference"),
        ("-0.09", "0.02", "as the reference"),
        ("0", "0.10019", "as the reference"),
        ("0", "0.1", "differs by −0.1002"),
        ("-0.5", "0.1", "differs by +0.3998"),
    ],
)
def test_a_real_run_s_rise_is_told_with_its_distance(
    value: str, tolerance: str, verdict: str
) -> None:
    assert row(value, tolerance, "rise", final("grpo")).verdict == verdict


def test_a_null_that_a_real_eval_wrote_is_not_measured() -> None:
    said = final("evaluate")

    assert said["stderr"] is None
    assert row("0", "1", "stderr", said).verdict == "not measured"
    assert row("1", "0", "eval_reward", said).verdict == "as the reference"


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), True, "0.1", [0.1]])
def test_what_is_no_number_gets_no_verdict(value: object) -> None:
    found = row("0", "1000", "rise", {"rise": value})

    assert (found.measured, found.verdict, found.differs) == (None, "not measured", False)


def test_a_number_that_was_never_told_gets_no_verdict() -> None:
    assert row("0", "1000", "eval_reward_middle", final("grpo")).verdict == "not measured"


def test_a_job_that_is_not_done_has_measured_nothing() -> None:
    wanted = {"unscored": reference("0", "0")}

    (found,) = compared("grpo", wanted, {"unscored": 0}, done=False)

    assert found.verdict == "not measured"


def test_huge_and_tiny_numbers_are_told_as_they_are() -> None:
    assert row("0", "1", "n", {"n": 10**400}).verdict == "differs by +1.000e+400"
    assert row("0", "0", "n", {"n": 1e-7}).verdict == "differs by +0.0000001"


@pytest.fixture
def ended(begun: tuple[Bucket, RunRecord]) -> Opened:
    """A run whose job is done and told the real numbers of grpo's metrics file."""
    bucket, record = begun
    (job,) = record.plan.jobs
    wanted = {
        "rise": reference("0.044", "0.05"),
        "eval_reward_before": reference("0.6", "0.05"),
        "middle": reference("0.52", "0.05"),
    }
    jobs = (job.model_copy(update={"reference": wanted}),)
    plan = record.plan.model_copy(update={"jobs": jobs})
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    status = {"state": "done", "complete": True, "metrics": final("grpo")}
    bucket.put(f"runs/{record.run_id}/jobs/{job.name}/status.json", json.dumps(status).encode())
    return Opened(bucket.session, bucket, record.model_copy(update={"plan": plan}))


def test_status_ends_with_a_row_for_each_reference(ended: Opened) -> None:
    out = io.StringIO()
    make_console(file=out).print(result_view(ended.runner().look()))
    lines = [[cell.strip() for cell in line.split("│")] for line in out.getvalue().splitlines()]
    rows = {cells[2]: cells[3:6] for cells in lines if len(cells) == 8}

    assert "Beside the references" in out.getvalue()
    assert rows["rise"] == ["-0.1002", "0.044 ± 0.05", "differs by −0.1442"]
    assert rows["eval_reward_before"] == ["0.6318", "0.6 ± 0.05", "as the reference"]
    assert rows["middle"] == ["–", "0.52 ± 0.05", "not measured"]


def test_a_live_table_has_no_rows_of_what_is_not_measured_yet(ended: Opened) -> None:
    out = io.StringIO()
    make_console(file=out).print(result_view(ended.runner().look(), references=False))

    assert "reference" not in out.getvalue()


def test_the_report_page_has_the_same_rows(ended: Opened, tmp_path: Path) -> None:
    page = write_report(ended, tmp_path).read_text("utf-8")

    assert '<td class="bad">differs by −0.1442<td>seed run A, L40S' in page
    assert '<td class="good">as the reference' in page
    assert '<td class="dim">not measured' in page
    assert "env/no_call_truncated 0" in page


def test_the_table_is_printed_for_a_results_page(
    ended: Opened, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "_open", lambda *_: ended)
    cli.report(ended.record.run_id, table=True)
    head, _, *rows = capsys.readouterr().out.splitlines()

    assert head.startswith(f"{ended.record.run_id} on local, us-east-1, ")
    assert "pins none; $" in head
    assert rows[0] == "| job | number | measured | reference | verdict | source |"
    assert rows[2:] == [
        f"| count | {cells} | seed run A, L40S |"
        for cells in (
            "rise | -0.1002 | 0.044 ± 0.05 | differs by −0.1442",
            "eval_reward_before | 0.6318 | 0.6 ± 0.05 | as the reference",
            "middle | – | 0.52 ± 0.05 | not measured",
        )
    ]


def test_a_run_without_references_says_so(
    begun: tuple[Bucket, RunRecord],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bucket, record = begun
    monkeypatch.setattr(cli, "_open", lambda *_: Opened(bucket.session, bucket, record))
    cli.report(record.run_id, table=True)

    assert capsys.readouterr().out == f"{record.run_id}: none of its jobs has a `reference`\n"


GOOD = "{value: 0.5, tolerance: 0.1, source: a}"


def refused(folder: Path, number: str, spelled: str) -> str:
    text = spoil("retries: 2", f"reference: {{{number}: {spelled}}}")
    with pytest.raises(RunbookError) as error:
        load_runbook(write_runbook(folder, text))
    return str(error.value)


@pytest.mark.parametrize(
    ("number", "spelled", "says", "fix"),
    [
        ("rise", "{value: 1, tolerance: -0.1, source: a}", "tolerance: -0.1 is", "0 or more"),
        ("rise", "{value: 1, tolerance: .nan, source: a}", "tolerance: nan isn't", "plain number"),
        ("rise", "{value: '1', tolerance: 0, source: a}", "value: '1' isn't a number", "quotes"),
        ("rise", "{value: 1, tolerance: 0}", "source: is missing", "Where it is from"),
        ("rise", "{value: 1, source: a}", "tolerance: is missing", "How far from it"),
        ("rise", "{value: 1, tolerance: 0, source: ' '}", "source: says nothing", "Name who"),
        ("rise", "{value: 1, tolerance: 0, src: a}", "unknown key 'src'", "source"),
        ("rize", GOOD, "rize: grpo tells no number 'rize'", "Did you mean 'rise'?"),
    ],
)
def test_a_wrong_reference_is_refused_at_plan_time(
    tmp_path: Path, number: str, spelled: str, says: str, fix: str
) -> None:
    said = refused(tmp_path, number, spelled)

    assert "jobs.grpo.reference" in said
    assert says in said
    assert fix in said


def test_a_number_to_be_expected_must_be_told_too(tmp_path: Path) -> None:
    text = spoil("retries: 2", "expect: {rises: {min: 0}}")
    with pytest.raises(RunbookError, match="grpo tells no number 'rises'"):
        load_runbook(write_runbook(tmp_path, text))


def test_a_command_may_tell_any_number(tmp_path: Path) -> None:
    text = spoil("results: [out]", f"reference: {{anything: {GOOD}}}")
    load_runbook(write_runbook(tmp_path, text))
