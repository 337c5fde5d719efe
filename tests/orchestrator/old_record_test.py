"""A run that an older version began: this one goes on with it, shows it and ends it.

`records/` holds plans as those versions wrote them into run.json.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from orchestrator.aws.bucket import Bucket
from orchestrator.aws.session import Session
from orchestrator.console.plan import plan_view
from orchestrator.console.terminal import make_console
from orchestrator.console.views import result_view
from orchestrator.delivery import pull_run
from orchestrator.opened import Opened
from orchestrator.report import reference_table, write_report
from orchestrator.run import RunRecord, read_record
from orchestrator.snapshot import Stage

from .runner_test import Clock, another, begun, clock, rules, session, shut_down

__all__ = ["begun", "clock", "rules", "session"]

PLANS = sorted((Path(__file__).parent / "records").glob("plan-*.json"))


@pytest.fixture(params=PLANS, ids=lambda path: path.stem)
def old(
    request: pytest.FixtureRequest, session: Session, begun: tuple[Bucket, RunRecord]
) -> Opened:
    """A run on record, nothing built yet, whose plan is that of an older version."""
    bucket, record = begun
    said = json.loads(record.model_dump_json())
    plan = json.loads(request.param.read_text("utf-8"))
    said["plan"] = {**plan, "ami_id": record.plan.ami_id}
    bucket.put(f"runs/{record.run_id}/run.json", json.dumps(said).encode())
    return Opened(session, bucket, read_record(bucket, record.run_id))


def test_it_is_driven_to_its_end_shown_reported_and_pulled(
    old: Opened, session: Session, clock: Clock, tmp_path: Path
) -> None:
    clock.at_wait = lambda: shut_down(session)
    seen = another(session, (old.bucket, old.record), clock).drive()
    out = io.StringIO()
    make_console(file=out).print(plan_view(old.record.plan), result_view(seen))

    assert seen.stage is Stage.CLEAN
    assert all(job.name in out.getvalue() for job in seen.jobs)
    assert "<h2>Bill</h2>" in write_report(old, tmp_path, seen=seen).read_text("utf-8")
    assert "none of its jobs has a `reference`" in reference_table(old)
    assert set(pull_run(old, tmp_path).jobs) == {job.name for job in seen.jobs}
