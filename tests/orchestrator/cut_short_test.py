"""What a person is told to type when a command ends and its run goes on: never a second run."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator import billing, journey
from orchestrator.console.live import Progress
from orchestrator.console.terminal import make_console
from orchestrator.errors import (
    ApiError,
    CapacityError,
    CloudError,
    CredentialsError,
    GpurunError,
    QuotaError,
)
from orchestrator.localcloud import process
from orchestrator.opened import Opened
from orchestrator.regions import Try
from orchestrator.run import EventKind
from orchestrator.typed import chosen, typed

from .cli_test import gpurun

RUN = "luck-261201-200000-k7qm"
AGAIN = "Type the command again; it goes on where it stopped."
NOW = datetime(2026, 12, 1, 20, 0, tzinfo=UTC)


@pytest.fixture
def on_aws() -> Iterator[None]:
    before = chosen.set("aws")
    yield
    chosen.reset(before)


@pytest.mark.parametrize(
    "error",
    [
        CredentialsError("expired", hint="Renew them and type the command again."),
        ApiError("no answer", hint=AGAIN),
    ],
)
def test_whoever_lost_the_connection_is_not_told_to_begin_a_second_run(
    error: GpurunError, tmp_path: Path
) -> None:
    with pytest.raises(type(error)) as told:
        go(opened(drive=raising(error)), tmp_path)
    assert "type the command again" not in told.value.hint.lower()
    for words in (f"gpurun resume {RUN}", f"gpurun down {RUN}", "2026-12-01 22:00:00 UTC"):
        assert words in told.value.hint


def raising(error: Exception) -> Any:
    def act(*_: object, **__: object) -> None:
        raise error

    return act


def opened(*events: EventKind, region: str = "us-east-1", **acts: Any) -> Opened:
    """A run with a controller that acts so, and a log with such entries."""
    boxes = [SimpleNamespace(poweroff_at=NOW + timedelta(hours=30))]
    record = SimpleNamespace(
        run_id=RUN,
        region=region,
        expires_at=NOW + timedelta(hours=2),
        plan=SimpleNamespace(boxes=boxes),
    )
    log = SimpleNamespace(read=lambda: [SimpleNamespace(kind=kind, box=None) for kind in events])
    runner = SimpleNamespace(log=log, **acts)
    return cast(Opened, SimpleNamespace(record=record, runner=lambda *_: runner))


def go(run: Opened, to: Path, *, detach: bool = False) -> str:
    """What it prints."""
    out = io.StringIO()
    journey.go(run, make_console(file=out), to=to, detach=detach)
    return out.getvalue()


def test_a_run_that_has_ended_is_not_said_to_bill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journey, "deliver", raising(ApiError("no answer", hint=AGAIN)))
    with pytest.raises(ApiError) as told:
        go(opened(drive=lambda: "seen"), tmp_path)
    assert "type the command again" not in told.value.hint.lower()
    assert "may run and bill" not in told.value.hint
    for words in (f"gpurun resume {RUN}", f"gpurun pull {RUN}", f"{RUN} has ended"):
        assert words in told.value.hint


@pytest.mark.parametrize(("events", "bills"), [((), True), ((EventKind.CLEAN,), False)])
def test_a_quota_that_ends_a_watch_is_told_from_one_that_let_nothing_begin(
    tmp_path: Path, events: tuple[EventKind, ...], bills: bool
) -> None:
    error = QuotaError("schedules are used up", hint="Ask AWS for more.")
    with pytest.raises(QuotaError) as told:
        go(opened(*events, drive=raising(error)), tmp_path)
    assert ("may run and bill" in told.value.hint) == bills


def test_detached_a_run_says_the_day_on_which_its_boxes_are_off(tmp_path: Path) -> None:
    said = go(opened(launch_all=lambda: None), tmp_path, detach=True)
    assert "goes on by itself" in said
    assert "2026-12-03 02:00:00 UTC" in said


def test_detached_a_run_that_was_ended_meanwhile_is_not_said_to_go_on(tmp_path: Path) -> None:
    run = opened(EventKind.TEARING_DOWN, EventKind.CLEAN, launch_all=lambda: None)
    said = go(run, tmp_path, detach=True)
    assert "goes on by itself" not in said
    assert f"gpurun down {RUN}" in said


def up(monkeypatch: pytest.MonkeyPatch, to: Path, *runs: Opened) -> list[Try]:
    """One run after the other until one is through, and what was tried by then."""
    left, tried = list(runs), list[Try]()

    def elsewhere(tries: Sequence[Try]) -> Any:
        tried[:] = tries
        money = Decimal(1)
        return SimpleNamespace(region="next", worst_case_usd=money, cap_usd=money)

    monkeypatch.setattr(journey, "begin", lambda *_, **__: left.pop(0))
    monkeypatch.setattr(journey, "deliver", lambda *_, **__: None)
    journey.up(elsewhere([]), make_console(), elsewhere=elsewhere, to=to)
    assert left == []
    return tried


def refused(error: GpurunError, region: str, ledger: Any = None) -> Opened:
    """A run that found no room, and is clean again."""
    spent = SimpleNamespace(settled_usd=Decimal("0.3"), reserved_usd=Decimal(0))
    books = SimpleNamespace(ledger=ledger or (lambda: spent))
    return opened(EventKind.CLEAN, region=region, drive=raising(error), books=books)


def test_a_launch_that_a_quota_refuses_elsewhere_is_passed_over_as_one_without_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    full = refused(CapacityError("no room"), "a")
    used_up = refused(QuotaError("used up"), "b")
    tried = up(monkeypatch, tmp_path, full, used_up, opened(region="c", drive=lambda: None))
    assert [(each.region, each.cost_usd) for each in tried] == [
        ("a", Decimal("0.3")),
        ("b", Decimal("0.3")),
    ]
    with pytest.raises(QuotaError):  # where it was planned to be, a person can do something
        up(monkeypatch, tmp_path, used_up)


def test_what_a_try_cost_that_cant_be_read_begins_no_other_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    full = refused(CapacityError("no room"), "a", raising(ApiError("no answer", hint=AGAIN)))
    with pytest.raises(ApiError) as told:
        up(monkeypatch, tmp_path, full)
    assert "type the command again" not in told.value.hint.lower()
    assert f"gpurun bill {RUN}" in told.value.hint


def test_a_meter_that_doesn_t_answer_is_a_cloud_that_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = SimpleNamespace(url="http://127.0.0.1:1")
    monkeypatch.setattr(process, "status", lambda _: gone)
    with pytest.raises(CloudError, match="say what it metered") as told:
        billing.cloud_meter(RUN)
    assert "gpurun cloud status" in told.value.hint


def test_a_command_in_a_message_about_aws_asks_aws(on_aws: None) -> None:
    assert typed("Again: gpurun sweep --yes") == "Again: gpurun sweep --cloud aws --yes"
    assert typed(f"end it: gpurun down {RUN}") == f"end it: gpurun down --cloud aws {RUN}"
    for as_it_is in (f"gpurun down {RUN} --cloud aws", "gpurun cloud start", "gpurun aws setup"):
        assert typed(as_it_is) == as_it_is


def test_a_command_in_a_message_about_the_local_cloud_stays_short() -> None:
    assert typed(f"gpurun down {RUN}") == f"gpurun down {RUN}"


def test_what_the_console_says_names_the_cloud(on_aws: None) -> None:
    out = io.StringIO()
    with Progress(make_console(file=out)) as progress:
        progress.step(f"fetch its results: gpurun rescue {RUN} one")
    assert f"gpurun rescue --cloud aws {RUN} one" in out.getvalue()


def test_an_error_of_a_command_on_aws_names_the_next_one_there(tmp_path: Path) -> None:
    done = gpurun("pull", "nonsense", "--cloud", "aws", home=tmp_path, code=9)
    assert "gpurun status --cloud aws" in done.stderr
