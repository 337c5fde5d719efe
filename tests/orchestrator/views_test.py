"""What a person is shown of a run: numbers in short, curves without made-up lines, few lines."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from orchestrator.bill import Bill, BillLine
from orchestrator.billing import beside_meter
from orchestrator.console.live import Progress
from orchestrator.console.terminal import make_console
from orchestrator.console.views import result_view
from orchestrator.money import usd, usd_free
from orchestrator.planned import PlannedJob, Range
from orchestrator.progress import _job_view
from orchestrator.report import _drawn, _unbroken
from orchestrator.snapshot import BoxView, JobView, Snapshot, Stage

NOW = datetime(2026, 12, 1, 20, 0, tzinfo=UTC)


def job(**changes: Any) -> JobView:
    return JobView(
        **{
            "name": "grpo",
            "box": "l40s",
            "state": "running",
            "reason": "",
            "attempt": 1,
            "step": 3,
            "max_steps": 60,
            "metrics": {},
            "complete": False,
            "missed": (),
        }
        | changes
    )


def snapshot(at: datetime = NOW, **changes: Any) -> Snapshot:
    box = BoxView(
        name="l40s",
        instance="g6e.4xlarge",
        instance_id="i-1",
        state="running",
        reason="",
        phase="running",
        drain_at=NOW,
        poweroff_at=NOW,
        cloud_at=NOW,
        worst_case_usd=Decimal(2),
        usd=Decimal("0.5"),
        heartbeat_age_s=1.0,
    )
    return Snapshot(
        run_id="r",
        cloud="local",
        region="us-east-1",
        stage=Stage.RUNNING,
        at=at,
        cap_usd=Decimal(5),
        worst_case_usd=Decimal(2),
        spent_usd=Decimal("0.5"),
        boxes=(box,),
        jobs=(job(**changes),),
    )


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("1.201", "$1.21"),
        ("0.27", "$0.27"),
        ("0.03715", "$0.0372"),
        ("5", "$5.00"),
        ("0", "$0.00"),
        ("1234.5", "$1,234.50"),
    ],
)
def test_dollars_are_rounded_up(amount: str, shown: str) -> None:
    assert usd(Decimal(amount)) == shown


def test_a_bill_says_by_what_it_differs_from_what_the_cloud_metered() -> None:
    lines = [("compute", "0.15"), ("disk", "0.01"), ("s3", "0.2")]
    ours = tuple(BillLine("l4", kind, "", Decimal(1), Decimal(cost)) for kind, cost in lines)
    spent = [("compute", "0.149"), ("ebs", "0.01"), ("s3", "0.002"), ("transfer", "0.001")]
    items = [{"kind": kind, "usd": cost} for kind, cost in spent]
    words = beside_meter(
        Bill(ours, Decimal(5), Decimal(2)), {"total_usd": "0.162", "items": items}
    )
    assert words.splitlines() == [
        "metered by the local cloud: $0.162, boxes $0.159 and S3 $0.003 till now",
        "the bill has boxes $0.16, by the seconds that EC2 tells, and S3 $0.20,"
        " with a month of storage, one pull and the controller's looks",
    ]


def test_what_is_free_is_rounded_down() -> None:
    assert usd_free(Decimal("0.5199")) == "$0.51"


def test_an_outage_s_rollouts_are_told_in_one_line_each() -> None:
    numbers = {"next_rollouts": 16, "next_scored": 0, "next_unscored": 16, "down_s": 6.5}
    assert job(metrics=numbers).lines() == ["next: 0 of 16 rollouts scored", "down_s 6.5"]


def test_the_few_numbers_of_an_eval_are_told_and_the_rest_is_for_the_report() -> None:
    seen = job(
        metrics={"stderr": 0.0097, "rollouts": 768, "scored": 768, "unscored": 0}
        | {"env/tool_calls": 1.888, "score/value": 0.901, "eval_reward": 0.901}
    )
    assert seen.lines() == ["768 of 768 rollouts scored", "stderr 0.0097; eval_reward 0.901"]
    assert seen.details == "env/tool_calls 1.888; score/value 0.901"


def test_what_was_measured_at_several_times_has_a_line_of_its_own() -> None:
    numbers = {"eval_reward_before": 0.57992, "eval_reward_after": 0.9036, "rise": 0.3238}
    numbers |= {"tool_calls": 1.851, "tool_calls_first": 1.781, "tool_calls_last": 1.859}
    numbers |= {"eval_reward_middle": 0.8977, "loss_last": 2, "last": 1, "blast": 3}
    assert job(metrics=numbers).lines() == [
        "eval_reward: 0.5799 before, 0.8977 middle, 0.9036 after",
        "tool_calls: 1.851, 1.781 first, 1.859 last",
        "rise 0.3238; loss_last 2; last 1; blast 3",
    ]


def test_rollouts_that_nobody_says_were_scored_are_a_number_like_any_other() -> None:
    assert job(metrics={"next_rollouts": 16}).lines() == ["next_rollouts 16"]


def test_a_failed_job_says_why_and_a_done_one_what_was_expected() -> None:
    assert job(state="failed", reason="exit status 1").lines() == ["exit status 1"]
    missed = job(state="done", missed=("rise 0.1 is outside 0.15 to …",)).lines()
    assert missed == ["expected otherwise: rise 0.1 is outside 0.15 to …"]


@pytest.mark.parametrize(
    ("value", "missed"),
    [
        (0.5, ()),
        (1, ()),
        (0.4, ("rise 0.4 is outside 0.5 to 1",)),
        (10**400, (f"rise {10**400} is outside 0.5 to 1",)),
        (float("nan"), ("rise nan is outside 0.5 to 1",)),
        (float("inf"), ("rise inf is outside 0.5 to 1",)),
        (True, ("rise is True, which is no number",)),
        ("0.7", ("rise is '0.7', which is no number",)),
        (None, ("rise was not reported",)),
    ],
)
def test_whatever_a_job_reports_is_as_expected_or_told_in_words(
    value: object, missed: tuple[str, ...]
) -> None:
    wanted = {"rise": Range(min=Decimal("0.5"), max=Decimal(1))}
    fields: dict[str, Any] = {"name": "grpo", "box": "l40s", "expect": wanted}
    planned = PlannedJob.model_construct(**fields)
    seen = _job_view(planned, {"state": "done", "metrics": {"rise": value}})
    assert seen.missed == missed
    assert not wanted["rise"].holds(True)
    assert _job_view(planned, {"state": "done", "metrics": [1]}).metrics == {}


def test_a_curve_is_drawn_of_numbers_alone_and_nan_is_no_reward() -> None:
    odd = [{"kind": "train", "step": step, "reward": 1.0} for step in (None, "4", True, [1])]
    rewards = [0.1, 0.2, float("nan"), True, "0.3", 10**400]
    rows = [{"kind": "train", "step": n, "reward": it} for n, it in enumerate(rewards)]
    drawn = _drawn([*odd, *rows, {"kind": "eval", "reward": 0.5}])
    assert drawn is not None
    assert [len(part) for part in drawn["lines"]] == [2]
    assert (len(drawn["unscored"]), drawn["dots"], drawn["last_step"]) == (4, [], 5)


def test_no_line_is_drawn_across_a_step_without_a_reward() -> None:
    rows = [{"step": n, "reward": reward} for n, reward in enumerate([0.1, 0.2, None, None, 0.3])]
    assert [[row["step"] for row in part] for part in _unbroken(rows)] == [[0, 1], [4]]


def test_off_a_terminal_a_line_is_printed_when_something_changed() -> None:
    out = io.StringIO()
    with Progress(make_console(file=out)) as progress:
        progress.show(snapshot())
        progress.show(snapshot(NOW + timedelta(seconds=1), step=4))  # too soon for a mere step
        progress.show(snapshot(NOW + timedelta(seconds=2), state="syncing", step=4))
        progress.show(snapshot(NOW + timedelta(seconds=20), state="syncing", step=5))
    assert out.getvalue().splitlines() == [
        "20:00:00 box l40s: running",
        "20:00:00 job grpo: running step 3/60",
        "20:00:02 job grpo: syncing step 4/60",
        "20:00:20 job grpo: syncing step 5/60",
    ]


def test_a_step_of_the_controller_is_said_once() -> None:
    out = io.StringIO()
    with Progress(make_console(file=out)) as progress:
        for words in ("no answer, trying again", "no answer, trying again", "running"):
            progress.step(words)
    assert [line[9:] for line in out.getvalue().splitlines()] == [
        "no answer, trying again",
        "running",
    ]


def test_words_from_a_job_are_not_taken_for_markup() -> None:
    out = io.StringIO()
    seen = snapshot(state="failed", reason="[red]not a colour[/red] [/]")
    make_console(file=out).print(result_view(seen))
    assert "[red]not a colour[/red] [/]" in out.getvalue()
