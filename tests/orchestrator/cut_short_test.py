"""What a person is told to type when a command ends and its run goes on: never a second run."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator import journey
from orchestrator.console import Progress, make_console
from orchestrator.errors import ApiError, CredentialsError, GpurunError
from orchestrator.opened import Opened
from orchestrator.typed import chosen, typed

from .cli_test import gpurun

RUN = "luck-261201-200000-k7qm"
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
        ApiError("no answer", hint="Type the command again; it goes on where it stopped."),
    ],
)
def test_whoever_lost_the_connection_is_not_told_to_begin_a_second_run(
    error: GpurunError, tmp_path: Path
) -> None:
    def drive() -> None:
        raise error

    opened: Any = SimpleNamespace(
        record=SimpleNamespace(run_id=RUN, expires_at=NOW + timedelta(hours=2)),
        runner=lambda _: SimpleNamespace(drive=drive),
    )
    with pytest.raises(type(error)) as told:
        journey.go(cast(Opened, opened), make_console(), to=tmp_path)
    assert "type the command again" not in told.value.hint.lower()
    for words in (f"gpurun resume {RUN}", f"gpurun down {RUN}", "2026-12-01 22:00:00 UTC"):
        assert words in told.value.hint


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
