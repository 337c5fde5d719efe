"""From a run id, or from nothing, to open connections: how every command but `plan` begins."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.aws.bucket import Bucket, find_run_bucket, result_buckets
from orchestrator.aws.session import Session, open_session
from orchestrator.clock import SystemClock
from orchestrator.errors import CloudError, RunDamaged
from orchestrator.localcloud import process
from orchestrator.progress import run_row
from orchestrator.purse import LOOK_S
from orchestrator.run import RunLog, RunRecord, check_run_id, read_record
from orchestrator.runner import Runner
from orchestrator.settings import CloudName, Settings
from orchestrator.snapshot import RunRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.console.live import Progress

# Where to begin looking for a run when the environment names no region; all are looked through.
DEFAULT_REGION = "us-east-1"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Opened:
    """A run's record with the session and bucket it lives in."""

    session: Session
    bucket: Bucket
    record: RunRecord

    def runner(self, progress: Progress | None = None) -> Runner:
        """A runner over this run, telling `progress` what it sees."""
        runner = Runner(self.session, self.bucket, self.record, SystemClock())
        runner.poll_s = LOOK_S[self.session.cloud]
        if progress:
            runner.on_progress, runner.on_step = progress.show, progress.step
        return runner


def open_cloud(cloud: CloudName, region: str | None = None) -> Session:
    """A session on AWS, or on the local cloud that is running.

    Raises:
        CredentialsError: AWS doesn't know us.
        CloudError: the local cloud isn't running.
    """
    settings = Settings()
    if cloud == "local" and process.status(settings.home) is None:
        raise CloudError("The local cloud isn't running.", hint="Start it: gpurun cloud start")
    return open_session(settings, cloud, region or settings.region or DEFAULT_REGION)


def open_run(run_id: str, cloud: CloudName) -> Opened:
    """Find a run by its id alone, in whatever region it is.

    Raises:
        RunNotFound: no bucket of this account has it.
    """
    check_run_id(run_id)
    bucket = find_run_bucket(open_cloud(cloud), run_id)
    return Opened(bucket.session, bucket, read_record(bucket, run_id))


def list_runs(cloud: CloudName) -> Iterator[RunRow]:
    """Every run on record in this account; a run that died before its record was written isn't."""
    for bucket in result_buckets(open_cloud(cloud)):
        for run_id in bucket.folders("runs/"):
            if bucket.head(f"runs/{run_id}/run.json") is not None:
                try:
                    yield run_row(read_record(bucket, run_id), RunLog(bucket, run_id).read())
                except RunDamaged as error:  # it must not hide the others
                    _log.warning("%s", error)
