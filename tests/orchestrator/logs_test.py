"""A job's log as `gpurun logs` shows it."""

from __future__ import annotations

import hashlib
import json

import pytest
import typer

from orchestrator import cli
from orchestrator.aws.bucket import Bucket
from orchestrator.errors import ResultsMissing
from orchestrator.logs import read_logs
from orchestrator.opened import Opened
from orchestrator.run import RunRecord

from .runner_test import begun, clock, rules, session

__all__ = ["begun", "clock", "rules", "session"]


def test_an_empty_log_is_a_log_and_none_is_told_from_it(begun: tuple[Bucket, RunRecord]) -> None:
    bucket, record = begun
    opened = Opened(bucket.session, bucket, record)
    with pytest.raises(ResultsMissing, match="no log yet"):
        list(read_logs(opened, "count", follow=False))
    sha256 = hashlib.sha256(b"").hexdigest()
    said = {"format": 1, "run": record.run_id, "job": "count", "seq": 1, "attempt": 1, "at": 1.0}
    said |= {"step": None, "final": False}
    said |= {"files": {"log.txt": {"sha256": sha256, "size": 0, "mode": 0o644}}}
    base = f"runs/{record.run_id}/jobs/count"
    bucket.put(f"{base}/blobs/{sha256}", b"")
    bucket.put(f"{base}/manifests/000001.json", json.dumps(said).encode())
    assert list(read_logs(opened, "count", follow=False)) == []


def test_a_job_that_the_run_does_not_have_is_bad_input_and_its_jobs_are_named(
    begun: tuple[Bucket, RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, record = begun
    monkeypatch.setattr(cli, "_open", lambda *_: Opened(bucket.session, bucket, record))
    with pytest.raises(typer.BadParameter, match="no job 'nojob'; its jobs: count") as told:
        cli.logs(record.run_id, "nojob")
    assert told.value.exit_code == 2
