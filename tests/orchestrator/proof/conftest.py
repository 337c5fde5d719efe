"""A proof in this process, on strict moto and a clock that only waiting moves: no box is real."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.aws.session import Session
from orchestrator.aws.waits import Patience
from orchestrator.localcloud.strict import StrictRules, strict_aws
from orchestrator.proof.design import AWS
from orchestrator.proof.life import Proof

ACCOUNT, REGION = "123456789012", "us-east-1"


@dataclass
class FakeClock:
    """Time that passes only while somebody waits."""

    at: datetime = datetime(2026, 11, 29, 19, 0, tzinfo=UTC)
    waited_s: float = 0.0

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.waited_s

    def sleep(self, seconds: float) -> None:
        self.waited_s += seconds
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def session(clock: FakeClock) -> Iterator[Session]:
    with strict_aws(StrictRules(now=clock.now)):
        patience = Patience(sleep=clock.sleep, clock=clock.monotonic)
        yield Session("aws", REGION, ACCOUNT, patience=patience)


@pytest.fixture
def proof_by(session: Session, clock: FakeClock, tmp_path: Path) -> Callable[[str], Proof]:
    """A proof as this person would start it."""

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
