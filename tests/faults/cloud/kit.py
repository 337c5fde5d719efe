"""One account to test against, under one face: the model, strict moto, or a real one (`aws`).

What only a rule can bring about (`turn`), and time that only waiting moves, a real account hasn't:
such a test is skipped there. To run the others on an account, which costs some money:
GPURUN_CONTRACT_PROFILE=… python -m pytest --force-enable-socket -m aws tests/faults
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from orchestrator.aws.session import Session
from orchestrator.aws.stack import teardown
from orchestrator.aws.tags import RunTags
from orchestrator.aws.waits import Patience
from orchestrator.localcloud.strict import StrictRules, strict_aws
from tests.fake_clock import FakeClock
from tests.faults.cloud.model import ModelCloud
from tests.faults.cloud.settings import ModelRules

ACCOUNT, REGION = "123456789012", "us-east-1"
RUN, OTHER_RUN = "demo-261129-190000-ab2c", "demo-261129-190000-zz77"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
PARAMETER = (
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEXwRyPPOsnWUbPbtbnI3nmrBYKz9wF7bIxNXEbZP4qd demo"
SERVICES = (
    "ec2",
    "iam",
    "s3",
    "scheduler",
    "secretsmanager",
    "service-quotas",
    "sqs",
    "ssm",
    "sts",
)


@dataclass
class TestAccount:
    """`rules` and `clock` are None on a real account."""

    __test__ = False

    name: str
    session: Session
    rules: ModelRules | StrictRules | None = None
    clock: FakeClock | None = None
    cloud: ModelCloud | None = None

    def __getattr__(self, service: str) -> Any:
        """`account.ec2`, `account.s3`, …"""
        name = {"quotas": "service-quotas", "secrets": "secretsmanager"}.get(service, service)
        if name not in SERVICES:
            raise AttributeError(service)
        return self.client(name)

    def client(self, service: str, *, fast: bool = False) -> Any:
        make: Any = self.session.client  # its overloads take no name that is known only later
        return make(service, fast=fast)

    def turn(self, **rules: Any) -> None:
        if self.rules is None:
            pytest.skip("a real account's rules can't be turned")
        for name, value in rules.items():
            getattr(self.rules, name)
            setattr(self.rules, name, value)

    def pass_time(self, seconds: float) -> None:
        if self.clock is None:
            pytest.skip("a real account's time can't be turned")
        self.clock.sleep(seconds)

    def now(self) -> datetime:
        return self.clock.now() if self.clock else datetime.now(UTC)

    def tags(self, run_id: str = RUN) -> RunTags:
        return RunTags(
            run_id=run_id,
            owner="ann@desk",
            expires_at=self.now() + timedelta(hours=3),
            bucket=f"gpurun-{self.session.account}-{self.session.region}",
        )

    def spec(self, *kinds: str) -> list[dict[str, Any]]:
        """Tags that the clean-up finds again."""
        tags = [{"Key": "gpurun:run", "Value": RUN}]
        return [{"ResourceType": kind, "Tags": tags} for kind in kinds]


@contextmanager
def open_account(name: str) -> Iterator[TestAccount]:
    opened = {"model": _model, "moto": _moto, "aws": _aws}[name]
    with opened() as account:
        yield account


@contextmanager
def _model() -> Iterator[TestAccount]:
    clock, rules = FakeClock(), ModelRules()
    cloud = ModelCloud(clock.now, rules, account=ACCOUNT, region=REGION)
    yield TestAccount("model", model_session(cloud, clock), rules, clock, cloud)


def model_session(cloud: ModelCloud, clock: FakeClock, region: str = REGION) -> Session:
    """A session all of whose clients are the model's, in every region that it is asked for."""
    return Session(
        "aws",
        region,
        ACCOUNT,
        patience=Patience(sleep=clock.sleep, clock=clock.monotonic),
        boto=nowhere(),
        clients=ModelClients(cloud),
    )


class ModelClients(dict[tuple[str, str, bool], Any]):
    """Clients made as they are asked for; no other client is ever made."""

    def __init__(self, cloud: ModelCloud) -> None:
        super().__init__()
        self._cloud = cloud

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: tuple[str, str, bool]) -> Any:
        self[key] = self._cloud.client(key[0], region=key[1])
        return self[key]


@contextmanager
def _moto() -> Iterator[TestAccount]:
    clock = FakeClock()
    with strict_aws(StrictRules(now=clock.now)) as rules:
        session = Session(
            "aws",
            REGION,
            ACCOUNT,
            patience=Patience(sleep=clock.sleep, clock=clock.monotonic),
            boto=nowhere(),
            clients=_moto_clients(),
        )
        yield TestAccount("moto", session, rules, clock)


@cache
def nowhere() -> boto3.Session:
    return boto3.Session(
        aws_access_key_id="testing", aws_secret_access_key="testing", region_name=REGION
    )


@cache
def _moto_clients() -> dict[Any, Any]:
    """Slow to make and without a state: the tests share them. They never retry by themselves."""
    config = Config(retries={"total_max_attempts": 1, "mode": "standard"})
    make: Any = nowhere().client
    return {
        (service, REGION, fast): make(service, config=config)
        for service in SERVICES
        for fast in (False, True)
    }


@contextmanager
def _aws() -> Iterator[TestAccount]:
    boto = _theirs()
    region = boto.region_name or REGION
    identity = boto.client("sts", region_name=region).get_caller_identity()
    session = Session("aws", region, identity["Account"], boto=boto)
    try:
        yield TestAccount("aws", session)
    finally:
        teardown(session, RUN, datetime.now(UTC))


def _theirs() -> boto3.Session:
    """Of the profile in GPURUN_CONTRACT_PROFILE: tests have lost the person's other settings."""
    profile = os.environ.get("GPURUN_CONTRACT_PROFILE")
    if not profile:
        pytest.skip("GPURUN_CONTRACT_PROFILE names no profile")
    files = {"config_file": "~/.aws/config", "credentials_file": "~/.aws/credentials"}
    found: dict[str, Any] = {name: (None, None, path, None) for name, path in files.items()}
    core = botocore.session.Session(session_vars=found, profile=profile)
    return boto3.Session(botocore_session=core)


def refusal(call: Callable[..., Any], **parameters: Any) -> str:
    """The code with which a call is refused."""
    return str(refused(call, **parameters).response["Error"]["Code"])


def refused(call: Callable[..., Any], **parameters: Any) -> Any:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    return caught.value


def trust(service: str) -> str:
    """A role's trust in one service."""
    return json.dumps(
        {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Principal": {"Service": f"{service}.amazonaws.com"},
                    "Action": "sts:AssumeRole",
                }
            ],
        }
    )
