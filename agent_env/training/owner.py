"""Who a job is to an env server that it shares with others."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from pathlib import Path
from urllib.parse import quote

from agent_env.client._dial import MOST_OWNER


def job_owner() -> str:
    """The same at each start of this job, which so has its dead run's room, and no other's."""
    if on_box := job_on_box():
        return "/".join(on_box)
    machine, job_file = socket.gethostname(), str(Path(sys.argv[-1]).resolve())
    owner = f"{machine}:{job_file}"
    if len(quote(owner, safe="")) <= MOST_OWNER:
        return owner
    return f"{machine}:{hashlib.sha256(os.fsencode(job_file)).hexdigest()}"


def job_on_box() -> tuple[str, str] | None:
    """The run and the job that this process is of, None where no box started it."""
    run, job = os.environ.get("GPURUN_RUN"), os.environ.get("GPURUN_JOB")
    return (run, job) if run and job else None
