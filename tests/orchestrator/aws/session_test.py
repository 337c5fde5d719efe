"""Credentials and endpoints: who we are, before anything is created."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import botocore.client
import pytest

from orchestrator.aws.session import Session, open_session
from orchestrator.errors import CloudError, CredentialsError
from orchestrator.localcloud.strict import StrictRules
from orchestrator.settings import Settings

from .account import REGION, other_account


def test_a_session_knows_its_account(rules: StrictRules) -> None:
    session = open_session(Settings(), "aws", REGION)
    assert (session.account, session.region, session.partition) == (
        "123456789012",
        REGION,
        "aws",
    )


def test_a_session_without_a_region_takes_the_one_of_the_settings(rules: StrictRules) -> None:
    settings = Settings(region="eu-north-1")
    assert open_session(settings, "aws", None).region == "eu-north-1"


def test_missing_credentials_are_told_before_any_call(
    rules: StrictRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(CredentialsError, match="No usable AWS credentials") as told:
        open_session(Settings(), "aws", REGION)
    assert "aws configure" in told.value.hint


def test_an_unknown_profile_is_a_matter_of_credentials(
    rules: StrictRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(CredentialsError, match="nobody"):
        open_session(Settings(), "aws", REGION)


def test_expired_credentials_are_told_from_other_refusals(
    rules: StrictRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, operation: str, *_: object, **__: object) -> None:
        raise botocore.client.ClientError(
            {"Error": {"Code": "ExpiredToken", "Message": "too old"}}, operation
        )

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", refuse)
    with pytest.raises(CredentialsError, match="too old"):
        open_session(Settings(), "aws", REGION)


def test_the_local_cloud_must_run(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    with pytest.raises(CloudError, match="isn't running") as told:
        open_session(settings, "local", REGION)
    assert "gpurun cloud start" in told.value.hint


def test_a_local_cloud_that_died_is_told_apart_from_aws(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    settings = Settings(home=_cloud_at(tmp_path, port))
    with pytest.raises(CloudError, match="doesn't answer"):
        open_session(settings, "local", REGION)


def test_a_persons_profile_and_proxy_do_not_reach_the_local_cloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:3128")
    settings = Settings(home=_cloud_at(tmp_path, 9))
    with pytest.raises(CloudError, match=r"127\.0\.0\.1:9"):
        open_session(settings, "local", REGION)


def test_every_client_gives_up_in_bounded_time(session: Session) -> None:
    # Any: the stubs of a client's config name none of its options.
    patient: Any = session.client("ec2").meta.config
    fast: Any = session.client("ec2", fast=True).meta.config
    assert patient.retries["total_max_attempts"] == 6
    assert fast.retries["total_max_attempts"] == 1
    assert patient.connect_timeout <= 5
    assert patient.read_timeout <= 30


def test_a_region_of_its_own_has_clients_of_its_own(session: Session) -> None:
    there = session.in_region("eu-central-1")
    assert there.client("ec2").meta.region_name == "eu-central-1"
    assert session.client("ec2").meta.region_name == REGION
    assert there.in_region(REGION).client("ec2") is session.client("ec2")


def test_somebody_else_is_another_account(session: Session) -> None:
    assert other_account("sts").get_caller_identity()["Account"] != session.account


def _cloud_at(home: Path, port: int) -> Path:
    folder = home / "cloud"
    folder.mkdir()
    state = {
        "pid": 1,
        "url": f"http://127.0.0.1:{port}",
        "driver": "process",
        "started_at": "2026-11-29T19:00:00Z",
        "region": REGION,
    }
    (folder / "state.json").write_text(json.dumps(state))
    return home
