"""A proof in this process, on strict moto and a clock that only waiting moves: no box is real."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.aws.session import Session
from orchestrator.aws.waits import Patience
from orchestrator.localcloud.strict import StrictRules, strict_aws
from orchestrator.payload import Payload
from orchestrator.proof import build
from orchestrator.proof.design import AWS
from orchestrator.proof.life import Proof
from tests.fake_clock import FakeClock

ACCOUNT, REGION = "123456789012", "us-east-1"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def session(clock: FakeClock) -> Iterator[Session]:
    with strict_aws(StrictRules(now=clock.now)):
        patience = Patience(sleep=clock.sleep, clock=clock.monotonic)
        yield Session("aws", REGION, ACCOUNT, patience=patience)


@pytest.fixture
def proof_by(
    session: Session, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Proof]:
    """A proof as this person would start it; what its boxes would fetch is empty."""
    payload = Payload(tmp_path / "payload.tar.gz", "0" * 64)
    payload.path.write_bytes(b"")
    monkeypatch.setattr(build, "build_payload", lambda *_, **__: payload)

    def made(owner: str) -> Proof:
        return Proof(
            session=session,
            cloud="aws",
            timing=replace(AWS, poll=60.0),
            cap_usd=Decimal("0.10"),
            clock=clock,
            owner=owner,
            to=tmp_path / "pulled",
        )

    return made
