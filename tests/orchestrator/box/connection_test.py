"""A line to an S3 that is away: when its client is made anew."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from orchestrator.box.connection import Connection, StoreDown


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The region of each client that was made; nothing listens where S3 is."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    regions: list[str] = []
    session = boto3.session.Session

    def make(*, region_name: str) -> Any:
        regions.append(region_name)
        return session(region_name=region_name)

    monkeypatch.setattr(boto3.session, "Session", make)
    return regions


def refused(line: Connection) -> None:
    with pytest.raises(StoreDown):
        line.call(lambda s3: s3.list_buckets())


def test_an_s3_that_is_away_costs_no_second_client(made: list[str]) -> None:
    line = Connection("us-east-1", fast=True)
    refused(line)
    refused(line)
    assert made == ["us-east-1"]


def test_a_client_without_credentials_is_made_anew(
    made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    line = Connection("us-east-1", fast=True)
    refused(line)
    refused(line)
    assert made == ["us-east-1"] * 2
