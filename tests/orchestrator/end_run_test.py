"""`gpurun down` when what the bucket says of the run is damaged or gone: the tags are enough."""

from __future__ import annotations

import pytest

from orchestrator import journey, opened
from orchestrator.aws.bucket import Bucket
from orchestrator.aws.session import Session
from orchestrator.aws.stack import leftovers
from orchestrator.console import Progress, make_console
from orchestrator.errors import RunNotFound
from orchestrator.run import RunRecord
from orchestrator.runner import Runner

from .runner_test import begun, clock, rules, runner, session

__all__ = ["begun", "clock", "rules", "runner", "session"]


@pytest.fixture(autouse=True)
def one_account(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (journey, opened):
        monkeypatch.setattr(module, "open_cloud", lambda *_: session)


@pytest.mark.parametrize("damaged", ["run.json", "events/000003.json"])
@pytest.mark.parametrize("data", [b"", b'{"run_id', b"[]"])
def test_a_run_with_a_damaged_record_or_log_is_ended_by_its_tags(
    runner: Runner, session: Session, begun: tuple[Bucket, RunRecord], damaged: str, data: bytes
) -> None:
    bucket, record = begun
    runner.launch_all()
    bucket.put(f"runs/{record.run_id}/{damaged}", data)
    journey.end_run(record.run_id, "aws", Progress(make_console()), now=False)
    assert leftovers(session, record.run_id) == []


def test_a_run_whose_record_is_gone_is_ended_by_its_tags_and_then_unknown(
    runner: Runner, session: Session, begun: tuple[Bucket, RunRecord]
) -> None:
    bucket, record = begun
    runner.launch_all()
    session.client("s3").delete_object(Bucket=bucket.name, Key=f"runs/{record.run_id}/run.json")
    journey.end_run(record.run_id, "aws", Progress(make_console()), now=False)
    assert leftovers(session, record.run_id) == []
    with pytest.raises(RunNotFound):
        journey.end_run(record.run_id, "aws", Progress(make_console()), now=False)
