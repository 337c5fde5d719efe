"""`gpurun aws setup`: asks before it makes anything on AWS, and takes it away when told."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from orchestrator import opened
from orchestrator.aws.session import Session
from orchestrator.cli.aws import aws_app
from orchestrator.errors import NotConfirmed

from .runner_test import clock, rules, session

__all__ = ["clock", "rules", "session"]


@pytest.fixture(autouse=True)
def one_account(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def here(_: str, region: str | None = None) -> Session:
        return session.in_region(region or session.region)

    monkeypatch.setattr(opened, "open_cloud", here)


def functions(session: Session, region: str) -> list[str]:
    found = session.in_region(region).client("lambda").list_functions()["Functions"]
    return [each["FunctionName"] for each in found]


def test_nothing_is_made_where_nobody_can_be_asked(session: Session) -> None:
    answer = CliRunner().invoke(aws_app, ["setup"])
    assert isinstance(answer.exception, NotConfirmed)
    assert functions(session, "us-east-1") == []


def test_it_goes_where_it_is_told_and_away_again(session: Session) -> None:
    where = ["--region", "eu-central-1", "--region", "us-west-2"]
    made = CliRunner().invoke(aws_app, ["setup", "--yes", *where])
    assert made.output.count("the reaper is installed") == 2
    assert functions(session, "us-east-1") == []
    assert functions(session, "eu-central-1") == functions(session, "us-west-2") != []
    again = CliRunner().invoke(aws_app, ["setup", "--yes", *where])
    assert again.output.count("nothing to do") == 2
    gone = CliRunner().invoke(aws_app, ["setup", "--remove", "--region", "eu-central-1"])
    assert "eu-central-1: the reaper is gone" in gone.output
    assert (functions(session, "eu-central-1"), len(functions(session, "us-west-2"))) == ([], 1)


def test_the_local_cloud_costs_nothing_so_nobody_is_asked(session: Session) -> None:
    assert CliRunner().invoke(aws_app, ["setup", "--cloud", "local"]).exit_code == 0
    assert functions(session, "us-east-1") == ["gpurun-reaper"]
