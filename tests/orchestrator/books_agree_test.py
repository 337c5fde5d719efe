"""Our own bill against the local cloud's meter, which knows only what the cloud did and stored."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest

from orchestrator.aws.bucket import Bucket
from orchestrator.aws.session import Session
from orchestrator.bill import Span
from orchestrator.catalog import load_catalog
from orchestrator.localcloud import objects
from orchestrator.localcloud.meter import Kind, Launch, Meter
from orchestrator.localcloud.rules.settings import ClockLife
from orchestrator.localcloud.strict import StrictRules
from orchestrator.plan import RESULTS
from orchestrator.run import RunRecord
from orchestrator.runner import Runner

from .runner_test import Clock, clock, rules, runner, session, shut_down
from .runner_test import begun_for_real as begun

__all__ = ["begun", "clock", "rules", "runner", "session"]

HEARTBEAT = json.dumps({"at": 0, "phase": "running", "jobs": {"count": {"step": 7}}}).encode()
RESULT = bytes(3 << 20)
WORKS_FOR = timedelta(minutes=7, seconds=13)


class MeteredLife(ClockLife):
    """As the local cloud's hypervisor tells its meter."""

    def __init__(self, rules: StrictRules, meter: Meter) -> None:
        super().__init__(rules)
        self._meter = meter

    def launched(self, instance: Any) -> None:
        super().launched(instance)
        tags = instance.ec2_backend.tags.get(instance.id, {})
        volumes = [v.volume_id for v in instance.block_device_mapping.values()]
        self._meter.launched(
            Launch(
                instance_id=instance.id,
                instance_type=instance.instance_type,
                region=instance.region_name,
                run=tags["gpurun:run"],
                box=tags["gpurun:box"],
                disk_gb=sum(int(instance.ec2_backend.volumes[v].size) for v in volumes),
                has_public_ip=True,
            )
        )

    def ending(self, instance: Any) -> None:
        super().ending(instance)
        self._meter.ended(instance.id, Kind)


class MeteredS3:
    """As the local cloud's web face tells its meter of each request of a controller."""

    def __init__(self, meter: Meter) -> None:
        self._meter, self._asked = meter, threading.local()

    def watch(self, client: Any) -> None:
        client.meta.events.register("request-created.s3", self._asks)
        client.meta.events.register("after-call.s3", self._answered)

    def _asks(self, request: Any, **_: Any) -> None:
        url = urlsplit(request.url)
        host = (url.hostname or "").partition(".s3.")
        path = f"/{host[0]}{url.path}" if host[1] else url.path
        self._asked.request = objects.parse(request.method, path, url.query)

    def _answered(self, http_response: Any, parsed: dict[str, Any], **_: Any) -> None:
        asked = self._asked.request
        if asked.run:
            size = int(parsed.get("ContentLength") or 0) if "Body" in parsed else 0
            size = size or len(getattr(http_response, "_content", b"") or b"")
            self._meter.s3_request(asked.run, put=asked.is_put, bytes_out=size)


@pytest.fixture
def meter(session: Session, rules: StrictRules, clock: Clock) -> Meter:
    made = Meter(load_catalog(), clock.now, session.region)
    rules.life = MeteredLife(rules, made)
    MeteredS3(made).watch(session.client("s3"))
    return made


@pytest.fixture
def works(
    session: Session, begun: tuple[Bucket, RunRecord], meter: Meter, clock: Clock
) -> Callable[[], None]:
    """A box in the eyes of the account: it beats at each look, leaves results, and powers off."""
    bucket, record = begun
    s3, ends = boto3.client("s3", session.region), clock.now() + WORKS_FOR

    def put(key: str, data: bytes) -> None:
        s3.put_object(Bucket=bucket.name, Key=f"runs/{record.run_id}/{key}", Body=data)
        meter.s3_request(record.run_id, put=True, bytes_out=0)

    def box() -> None:
        put("boxes/one/heartbeat.json", HEARTBEAT)
        put("jobs/count/status.json", HEARTBEAT)
        if clock.now() >= ends:
            put("jobs/count/blobs/abc", RESULT)
            shut_down(session)

    return box


def test_our_bill_agrees_with_the_meter_and_its_s3_line_is_never_too_low(
    meter: Meter,
    runner: Runner,
    clock: Clock,
    works: Callable[[], None],
) -> None:
    runner.poll_s = 5
    clock.at_wait = works
    runner.drive()
    run_id, record = runner.record.run_id, runner.record
    for key, _ in list(runner.bucket.keys(f"runs/{run_id}/jobs/")):
        runner.bucket.get(key)  # the pull

    items: Any = meter.bill(run_id, objects.stored())["items"]
    metered = {kind: sum_of(items, kind) for kind in Kind}
    shown = runner.purse.bill(spans(runner), clock.now())
    ours = {line.kind: line.usd for line in shown.lines}

    for mine, theirs in (("compute", Kind.COMPUTE), ("disk", Kind.EBS), ("address", Kind.IPV4)):
        assert metered[theirs] > 0
        assert ours[mine] == pytest.approx(metered[theirs], rel=Decimal("0.01"))
    s3 = metered[Kind.S3] + metered[Kind.TRANSFER]
    assert 0 < s3 <= ours["s3"] <= record.plan.results_usd
    assert shown.total_usd == runner.purse.ledger().settled_usd
    assert runner.purse.ledger().settled[RESULTS] == ours["s3"]
    assert shown.warnings == ()


def sum_of(items: list[dict[str, str]], kind: Kind) -> Decimal:
    return sum((Decimal(item["usd"]) for item in items if item["kind"] == kind), Decimal(0))


def spans(runner: Runner) -> list[Span]:
    disk_gb = runner.record.plan.box("one").disk_gb
    return [life.span(disk_gb) for life in runner.books.lives(runner.instances())]


def test_results_beyond_what_was_reserved_are_billed_as_they_are_and_said_loudly(
    runner: Runner, session: Session, clock: Clock, works: Callable[[], None]
) -> None:
    plan = runner.record.plan.model_copy(update={"results_usd": Decimal("0.0001")})
    record = runner.record.model_copy(update={"plan": plan})
    small = Runner(session, runner.bucket, record, clock, poll_s=30)
    clock.at_wait = works
    small.drive()
    shown = small.purse.bill([], clock.now())
    assert shown.total_usd == small.purse.ledger().settled[RESULTS] > Decimal("0.0001")
    assert "raise results_gb" in shown.warnings[0]
