"""Where a run stands: the plan, the log, EC2's list and the bucket's statuses, joined."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from orchestrator import results
from orchestrator.bill import Span, span_usd
from orchestrator.lives import Life, lives_by_box, lives_of
from orchestrator.plan import RESULTS
from orchestrator.purse import ledger_of
from orchestrator.run import Event, EventKind, RunRecord, has
from orchestrator.snapshot import BoxView, JobView, RunRow, Snapshot, Stage
from orchestrator.verdicts import compared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.aws.boxes import BoxRecord
    from orchestrator.aws.bucket import Bucket
    from orchestrator.catalog import Catalog
    from orchestrator.plan import PlannedBox, PlannedJob


def run_row(record: RunRecord, events: Sequence[Event]) -> RunRow:
    """One line about a run; asks nothing of EC2."""
    by_box = lives_by_box(lives_of(record, events, ()))
    ended = all(by_box.get(b.name) and by_box[b.name][-1].ended for b in record.plan.boxes)
    return RunRow(
        run_id=record.run_id,
        stage=_stage(events, ended=ended),
        region=record.region,
        created_at=record.created_at,
        cap_usd=record.plan.cap_usd,
        expires_at=record.expires_at,
    )


def snapshot(
    record: RunRecord,
    events: Sequence[Event],
    instances: Sequence[BoxRecord],
    bucket: Bucket,
    catalog: Catalog,
    now: datetime,
    alarms: tuple[str, ...] = (),
) -> Snapshot:
    """Join the plan, the log, EC2's list and the bucket's statuses."""
    by_box = lives_by_box(lives_of(record, events, instances))
    statuses = results.read_statuses(bucket, record.run_id, [job.name for job in record.plan.jobs])
    beats = results.read_heartbeats(bucket, record.run_id, [box.name for box in record.plan.boxes])

    def usd(box: PlannedBox) -> Decimal:
        spans = [life.span(box.disk_gb) for life in by_box.get(box.name, ())]
        return sum((span_usd(span, catalog, record.region, now) for span in spans), Decimal(0))

    s3 = ledger_of(record, events).settled.get(RESULTS, Decimal(0))
    boxes = tuple(
        _box_view(box, by_box.get(box.name, ()), beats.get(box.name), usd(box), now)
        for box in record.plan.boxes
    )
    return Snapshot(
        run_id=record.run_id,
        cloud=record.plan.cloud,
        region=record.region,
        stage=_stage(events, ended=all(box.state == "terminated" for box in boxes)),
        at=now,
        cap_usd=record.plan.cap_usd,
        worst_case_usd=record.plan.worst_case_usd,
        spent_usd=sum((box.usd for box in boxes), s3),
        boxes=boxes,
        jobs=tuple(_job_view(job, statuses.get(job.name)) for job in record.plan.jobs),
        alarms=alarms,
        ended_because=_ended_because(events),
    )


def run_spans(
    record: RunRecord, events: Sequence[Event], instances: Sequence[BoxRecord]
) -> list[Span]:
    """Billed lives of the run's instances; the log stands in for what EC2 has forgotten."""
    lives = lives_of(record, events, instances)
    return [life.span(record.plan.box(life.box).disk_gb) for life in lives]


def _stage(events: Sequence[Event], *, ended: bool) -> Stage:
    if has(events, EventKind.CLEAN):
        return Stage.CLEAN
    if has(events, EventKind.TEARING_DOWN):
        return Stage.TEARING_DOWN
    if ended:
        return Stage.ENDED
    if has(events, EventKind.LAUNCHED):
        return Stage.RUNNING
    return Stage.BUILDING if has(events, EventKind.BUILDING) else Stage.RESERVED


def _ended_because(events: Sequence[Event]) -> str:
    """Only `down --now` gives a tear-down a reason."""
    said = (each.reason for each in events if each.kind is EventKind.TEARING_DOWN)
    return next(filter(None, said), "")


def _box_view(
    box: PlannedBox,
    lives: Sequence[Life],
    beat: dict[str, Any] | None,
    usd: Decimal,
    now: datetime,
) -> BoxView:
    """The newest life of a box, at what all of them cost."""
    life = lives[-1] if lives else None
    if beat and life and beat.get("instance_id") in {each.instance_id for each in lives[:-1]}:
        beat = None  # the lost one's last word
    return BoxView(
        name=box.name,
        instance=life.instance_type if life else box.instance,
        instance_id=(life.instance_id or None) if life else None,
        attempt=life.attempt if life else 0,
        state=life.state if life else "not launched",
        reason=life.reason if life else "",
        phase=beat["phase"] if beat else None,
        drain_at=box.drain_at,
        poweroff_at=box.poweroff_at,
        cloud_at=box.cloud_at,
        worst_case_usd=box.worst_case_usd,
        usd=usd,
        heartbeat_age_s=max(0.0, now.timestamp() - float(beat["at"])) if beat else None,
    )


def _job_view(job: PlannedJob, status: dict[str, Any] | None) -> JobView:
    status = status or {}
    said = status.get("metrics")
    metrics = said if isinstance(said, dict) else {}
    done = status.get("state") == "done"
    return JobView(
        name=job.name,
        box=job.box,
        state=status.get("state", "not started"),
        reason=status.get("reason") or "",
        attempt=status.get("attempt") or 0,
        step=status.get("step"),
        max_steps=status.get("max_steps"),
        metrics=metrics,
        complete=bool(status.get("complete")),
        missed=tuple(_misses(job, metrics)) if done else (),
        compared=compared(job.name, job.reference, metrics, done=done),
    )


def _misses(job: PlannedJob, metrics: dict[str, Any]) -> list[str]:
    words = []
    for name, wanted in job.expect.items():
        value = metrics.get(name)
        if value is None:
            words.append(f"{name} was not reported")
        elif isinstance(value, bool) or not isinstance(value, int | float):
            words.append(f"{name} is {value!r}, which is no number")
        elif not wanted.holds(value):
            ends = (wanted.min, wanted.max)
            low, high = ("…" if end is None else str(end) for end in ends)
            words.append(f"{name} {_full(value)} is outside {low} to {high}")
    return words


def _full(value: float) -> str:
    """A whole number may be larger than any float."""
    return f"{value:g}" if isinstance(value, float) else str(value)
