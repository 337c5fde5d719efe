"""The way to one box of a run over SSH, from the bucket, or from what this machine kept."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

from orchestrator import kept
from orchestrator.aws.boxes import find_boxes
from orchestrator.errors import ApiError, BucketError, RemoteError, RunDamaged, RunNotFound
from orchestrator.opened import open_cloud, open_run
from orchestrator.remote import Remote
from orchestrator.run import read_ssh_secrets
from orchestrator.settings import Settings

if TYPE_CHECKING:
    from orchestrator.aws.session import Session
    from orchestrator.opened import Opened
    from orchestrator.run import RunRecord
    from orchestrator.settings import CloudName


def reach(run_id: str, box: str, cloud: CloudName) -> Remote:
    """A box that runs, of a run whose bucket may be gone.

    Raises:
        RunNotFound: no bucket has the run, and this machine didn't begin it.
        RemoteError: no such box is running.
    """
    try:
        opened = open_run(run_id, cloud)
        secrets = read_ssh_secrets(opened.bucket, run_id)
        return remote_of(opened.session, opened.record, secrets.user_private, box)
    except (ApiError, BucketError, RunDamaged, RunNotFound):
        found = kept.recall(Settings().home, run_id)
        if found is None:
            raise
    record, secrets = found
    return remote_of(open_cloud(cloud, record.region), record, secrets.user_private, box)


def ssh_box(opened: Opened, box: str, command: list[str]) -> int:
    """Run a command on a box, or open a shell; its exit status.

    Raises:
        RemoteError: the box isn't running, or can't be reached.
    """
    key = read_ssh_secrets(opened.bucket, opened.record.run_id).user_private
    remote = remote_of(opened.session, opened.record, key, box)
    if not command:
        return remote.shell()
    piped = None if sys.stdin.isatty() else sys.stdin
    answer = remote.run(command[0] if len(command) == 1 else shlex.join(command), stdin=piped)
    sys.stdout.write(answer.stdout)
    sys.stderr.write(answer.stderr)
    return answer.exited


def remote_of(session: Session, record: RunRecord, private_key: str, box: str) -> Remote:
    """Raises:
    RemoteError: no such box is running.
    """
    known = [planned.name for planned in record.plan.boxes]
    if box not in known:
        raise RemoteError(f"No box {box!r} in this run; its boxes: {', '.join(known)}")
    launched = [b for b in find_boxes(session, record.run_id) if b.box == box]
    alive = {b.box: b for b in launched if b.alive}
    if box not in alive:
        # EC2 forgets what has ended; then nobody here knows whether it was ever launched.
        words = "has ended" if launched else "isn't running"
        raise RemoteError(f"Box {box} {words}.", hint=f"Its results: gpurun pull {record.run_id}")
    found = alive[box]
    return Remote(found.ip or "", found.ssh_port, private_key, record.ssh_host_key)
