"""A proof as a person types it: price first, then one at a time, its folder and its last word."""

from __future__ import annotations

import signal
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.catalog import load_catalog
from orchestrator.clock import SystemClock
from orchestrator.errors import ProofFailed
from orchestrator.localcloud import process
from orchestrator.money import usd
from orchestrator.opened import DEFAULT_REGION, open_cloud
from orchestrator.proof.checks import Checks, ProofReport
from orchestrator.proof.design import (
    BOXES,
    DEFAULT_CAP_USD,
    INSTANCE,
    TIMINGS,
    proof_plan,
)
from orchestrator.proof.earlier import only_one
from orchestrator.proof.life import Proof
from orchestrator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from decimal import Decimal

    from orchestrator.aws.session import Session
    from orchestrator.plan import Plan
    from orchestrator.proof.checks import Check
    from orchestrator.settings import CloudName

_ONLY_AWS = (
    "that a power-off from inside ends an EC2 instance, and `halt` none",
    "that EventBridge Scheduler takes the role, and when it fires",
    "IAM's conditions, and how long profiles and roles take to be known",
    "the images, their systemd and Python; DependencyViolation; quota, capacity and the bill",
)


def quote(cloud: CloudName, cap_usd: Decimal | None) -> Plan:
    """The proof as if it started now; creates and calls nothing.

    Raises:
        OverCap: the worst case doesn't fit under the cap.
        CatalogError: the region has no price for the boxes' type.
    """
    now, cap = SystemClock().now().replace(microsecond=0), cap_usd or DEFAULT_CAP_USD
    return proof_plan(cloud, _region(), load_catalog(), now, TIMINGS[cloud], cap)


def header(plan: Plan) -> Iterator[str]:
    """What is going to happen, for how much, and what it can't show."""
    minutes = (max(box.poweroff_at for box in plan.boxes) - plan.planned_at).total_seconds() / 60
    yield (
        f"kill-proof · {plan.cloud} · {plan.region}: {len(BOXES)} × {INSTANCE}, "
        f"{minutes:.0f} min and the teardown; worst case {usd(plan.worst_case_usd)} of cap "
        f"{usd(plan.cap_usd)}, expected {usd(plan.expected_usd)}"
    )
    if plan.cloud == "local":
        yield "rehearsed on the local cloud; proves nothing about AWS itself. Only AWS shows:"
        yield from (f"  - {what}" for what in _ONLY_AWS)


def open_account(cloud: CloudName) -> Session:
    """A session where the proof runs; on the local cloud, which is started if need be.

    Raises:
        CredentialsError: AWS doesn't know us.
    """
    if cloud == "local":
        process.start(Settings().home)
    return open_cloud(cloud, _region())


def prove(
    cloud: CloudName,
    cap_usd: Decimal,
    to: Path | None,
    *,
    tell: Callable[[Check], None],
    step: Callable[[str], None],
) -> ProofReport:
    """Run the proof; being ended by SIGTERM tears down as Ctrl-C does."""
    settings = Settings()
    with only_one(settings.home):
        session = open_account(cloud)
        state = settings.cloud_state() if cloud == "local" else None
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        proof = Proof(
            session=session,
            cloud=cloud,
            timing=TIMINGS[cloud],
            cap_usd=cap_usd,
            clock=SystemClock(),
            owner=f"{settings.owner}@{socket.gethostname()}",
            to=to or Path(tempfile.mkdtemp(prefix="gpurun-kill-proof-")),
            boxes_are_processes=state is not None and state.driver == "process",
            checks=Checks(tell),
            on_step=step,
        )
        return proof.prove()


def summary(report: ProofReport) -> str:
    """The last line."""
    proved = len(report.checks) - len(report.failed)
    return (
        f"{report.run_id}: {proved} of {len(report.checks)} checks as promised, "
        f"{report.seconds:.0f} s, at most {usd(report.total_usd)}"
    )


def raise_unless_proved(report: ProofReport) -> None:
    """Raises ProofFailed, naming what failed and what is left."""
    if not report.failed:
        return
    failed = "\n".join(f"    {check.words()}" for check in report.failed)
    left = "".join(f"\n    left: {item}" for item in report.left)
    raise ProofFailed(
        f"Not as promised on {report.cloud}:\n{failed}{left}",
        hint=f"What was created is ended; look for yourself: gpurun sweep --cloud {report.cloud}",
    )


def _region() -> str:
    return Settings().region or DEFAULT_REGION
