"""An account in this process behind the strict rules, on a clock that only waiting moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest

from orchestrator.aws import keys, network, role
from orchestrator.aws.bucket import ensure_bucket
from orchestrator.aws.images import resolve_ami
from orchestrator.aws.session import Session
from orchestrator.aws.tags import RunTags
from orchestrator.aws.waits import Patience
from orchestrator.localcloud.strict import StrictRules, strict_aws
from tests.fake_clock import FakeClock

from .account import ACCOUNT, IMAGE, KEY, REGION, RUN, ZONES, Recorder, Stack, tags_of


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def rules(clock: FakeClock) -> Iterator[StrictRules]:
    with strict_aws(StrictRules(now=clock.now)) as in_force:
        yield in_force


@pytest.fixture(scope="session")
def clients() -> dict[Any, Any]:
    """boto3 clients are slow to make and know no state: the whole test run shares them."""
    return {}


@pytest.fixture
def session(rules: StrictRules, clock: FakeClock, clients: dict[Any, Any]) -> Session:
    """The path of `--cloud aws`, with a clock of our own."""
    patience = Patience(sleep=clock.sleep, clock=clock.monotonic)
    boto = clients.setdefault("boto", boto3.Session())
    return Session("aws", REGION, ACCOUNT, patience=patience, boto=boto, clients=clients)


@pytest.fixture
def record(session: Session) -> Iterator[Callable[[Any, str], Recorder]]:
    """`record("ec2", "RunInstances")` collects what is asked of AWS from now on."""
    started: list[tuple[Any, str, Recorder]] = []

    def start(service: Any, operation: str) -> Recorder:
        recorder = Recorder()
        for fast in (False, True):
            events = session.client(service, fast=fast).meta.events
            name = f"provide-client-params.{service}.{operation}"
            events.register(name, recorder)
            started.append((events, name, recorder))
        return recorder

    yield start
    for events, name, recorder in started:
        events.unregister(name, recorder)


@pytest.fixture
def tags(session: Session, clock: FakeClock) -> RunTags:
    return tags_of(RUN, session, clock)


@pytest.fixture
def build(session: Session, clock: FakeClock) -> Callable[[str], Stack]:
    """Everything that a run makes before its first box."""

    def made(run_id: str) -> Stack:
        tags = tags_of(run_id, session, clock)
        ensure_bucket(session)
        net = network.ensure_network(session, tags, ZONES, "192.0.2.7/32")
        role.ensure_box_role(session, tags, tags.bucket)
        role.ensure_kill_role(session, tags)
        keys.ensure_key_pair(session, tags, KEY)
        return Stack(session, tags, resolve_ami(session, IMAGE), net)

    return made


@pytest.fixture
def stack(build: Callable[[str], Stack]) -> Stack:
    return build(RUN)
