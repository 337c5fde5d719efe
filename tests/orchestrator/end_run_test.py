"""`gpurun down` when what the bucket says of the run is damaged or gone: the tags are enough."""

from __future__ import annotations

from dataclasses import fields

import pytest

from orchestrator import ending, kept, opened
from orchestrator import reach as reach_module
from orchestrator.aws import sweep
from orchestrator.aws.bucket import Bucket
from orchestrator.aws.session import Session
from orchestrator.aws.stack import leftovers
from orchestrator.console.live import Progress
from orchestrator.console.terminal import make_console
from orchestrator.errors import RemoteError, RunDamaged, RunNotFound
from orchestrator.reach import remote_of
from orchestrator.run import EventKind, RunLog, RunRecord, read_record, read_ssh_secrets
from orchestrator.runner import Runner
from orchestrator.settings import Settings

from .runner_test import Clock, begun, clock, rules, runner, session

__all__ = ["begun", "clock", "rules", "runner", "session"]


@pytest.fixture(autouse=True)
def one_account(session: Session, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ending, opened):
        monkeypatch.setattr(module, "open_cloud", lambda *_: session)
        monkeypatch.setattr(module, "SystemClock", lambda: clock)
    monkeypatch.setattr(sweep, "regions", lambda _: [session.region])


@pytest.mark.parametrize("damaged", ["run.json", "events/000003.json"])
@pytest.mark.parametrize("data", [b"", b'{"run_id', b"[]"])
def test_a_run_with_a_damaged_record_or_log_is_ended_by_its_tags(
    runner: Runner, session: Session, begun: tuple[Bucket, RunRecord], damaged: str, data: bytes
) -> None:
    bucket, record = begun
    runner.launch_all()
    bucket.put(f"runs/{record.run_id}/{damaged}", data)
    ending.end_run(record.run_id, "aws", Progress(make_console()), now=False)
    assert leftovers(session, record.run_id) == []


def test_a_record_cut_at_any_byte_is_damaged_and_nothing_else(
    begun: tuple[Bucket, RunRecord],
) -> None:
    bucket, record = begun
    whole = bucket.get(f"runs/{record.run_id}/run.json") or b""
    for length in range(len(whole)):
        with pytest.raises(RunDamaged, match="gpurun down"):
            read_record(_Holding(bucket, whole[:length]), record.run_id)
    assert read_record(_Holding(bucket, whole), record.run_id) == record


def test_a_log_entry_cut_at_any_byte_is_damaged_and_nothing_else(
    begun: tuple[Bucket, RunRecord], clock: Clock
) -> None:
    bucket, record = begun
    log = RunLog(bucket, record.run_id)
    log.append(EventKind.LAUNCHED, clock.now(), box="l4", instance_id="i-1", reason="it – is")
    whole = bucket.get(f"runs/{record.run_id}/events/000001.json") or b""
    for length in range(len(whole)):
        with pytest.raises(RunDamaged, match="gpurun down"):
            RunLog(_Holding(bucket, whole[:length]), record.run_id).read()
    assert RunLog(_Holding(bucket, whole), record.run_id).read() == log.read()


@pytest.mark.parametrize("data", [b"", b'{"user_private', b"[]", b"{}"])
def test_damaged_keys_are_named_and_a_box_is_reached_with_those_kept_here(
    runner: Runner,
    session: Session,
    begun: tuple[Bucket, RunRecord],
    monkeypatch: pytest.MonkeyPatch,
    data: bytes,
) -> None:
    bucket, record = begun
    runner.launch_all()
    secrets = read_ssh_secrets(bucket, record.run_id)
    bucket.put(f"control/{record.run_id}/ssh.json", data)
    with pytest.raises(RunDamaged, match=f"keys of {record.run_id}"):
        read_ssh_secrets(bucket, record.run_id)
    monkeypatch.setattr(reach_module, "open_cloud", lambda *_: session)
    with pytest.raises(RunDamaged):
        reach_module.reach(record.run_id, "one", "aws")
    kept.keep(Settings().home, record, secrets)
    assert reach_module.reach(record.run_id, "one", "aws")


@pytest.mark.parametrize(
    "garbage",
    [b"\0" * 64, b"\xff\xfe{}", b"null", b"1e999", b"{}" * 9, b"[" * 5000, b'{"seq": {}}'],
)
def test_garbage_in_place_of_a_record_or_an_entry_is_damage(
    begun: tuple[Bucket, RunRecord], clock: Clock, garbage: bytes
) -> None:
    bucket, record = begun
    RunLog(bucket, record.run_id).append(EventKind.BUILDING, clock.now())
    held = _Holding(bucket, garbage)
    with pytest.raises(RunDamaged):
        read_record(held, record.run_id)
    with pytest.raises(RunDamaged):
        RunLog(held, record.run_id).read()


def test_a_run_whose_bucket_is_gone_is_ended_by_its_tags(
    runner: Runner, session: Session, begun: tuple[Bucket, RunRecord]
) -> None:
    bucket, record = begun
    runner.launch_all()
    _delete_whole(session, bucket)
    ending.end_run(record.run_id, "aws", Progress(make_console()), now=False)
    assert leftovers(session, record.run_id) == []


def test_a_bucket_that_goes_while_a_run_is_taken_down_keeps_nothing_alive(
    runner: Runner,
    session: Session,
    begun: tuple[Bucket, RunRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket, record = begun
    runner.launch_all()
    monkeypatch.setattr(Runner, "drain_boxes", lambda _: _delete_whole(session, bucket))
    ending.end_run(record.run_id, "aws", Progress(make_console()), now=False)
    assert leftovers(session, record.run_id) == []


class _Holding(Bucket):
    """A bucket each of whose objects holds these bytes."""

    def __init__(self, like: Bucket, data: bytes) -> None:
        super().__init__(**{f.name: getattr(like, f.name) for f in fields(like) if f.init})
        object.__setattr__(self, "data", data)

    def get(self, key: str) -> bytes | None:
        data: bytes = self.__dict__["data"]
        return data


def _delete_whole(session: Session, bucket: Bucket) -> None:
    s3 = session.client("s3")
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket.name):
        for row in (*page.get("Versions", []), *page.get("DeleteMarkers", [])):
            s3.delete_object(Bucket=bucket.name, Key=row["Key"], VersionId=row["VersionId"])
    s3.delete_bucket(Bucket=bucket.name)


def test_a_run_whose_record_is_gone_is_ended_by_its_tags_and_then_unknown(
    runner: Runner, session: Session, begun: tuple[Bucket, RunRecord]
) -> None:
    bucket, record = begun
    runner.launch_all()
    session.client("s3").delete_object(Bucket=bucket.name, Key=f"runs/{record.run_id}/run.json")
    ending.end_run(record.run_id, "aws", Progress(make_console()), now=False)
    assert leftovers(session, record.run_id) == []
    with pytest.raises(RunNotFound):
        ending.end_run(record.run_id, "aws", Progress(make_console()), now=False)


def test_why_a_run_was_ended_at_once_is_told_wherever_it_is_shown(
    runner: Runner, begun: tuple[Bucket, RunRecord]
) -> None:
    runner.launch_all()
    assert runner.look().headline == "running"
    ending.end_run(begun[1].run_id, "aws", Progress(make_console()), now=True, why="loss is NaN")
    seen = runner.look()
    assert seen.headline == "clean, ended by hand: loss is NaN"
    assert seen.model_dump(mode="json")["ended_because"] == "loss is NaN"


def test_a_box_that_has_ended_is_told_from_one_that_never_was(
    runner: Runner, session: Session, begun: tuple[Bucket, RunRecord]
) -> None:
    _, record = begun
    name = record.plan.boxes[0].name
    with pytest.raises(RemoteError, match=f"Box {name} isn't running"):
        remote_of(session, record, "", name)
    runner.launch_all()
    runner.finish()
    with pytest.raises(RemoteError, match=f"Box {name} has ended") as told:
        remote_of(session, record, "", name)
    assert f"gpurun pull {record.run_id}" in told.value.hint
    with pytest.raises(RemoteError, match=f"No box 'zz' in this run; its boxes: {name}"):
        remote_of(session, record, "", "zz")
