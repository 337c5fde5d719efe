"""Who a job is to an env server that it shares with others."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path


def job_owner() -> str:
    """The same at each start of this job, which so has its dead run's room, and no other's."""
    if run := os.environ.get("GPURUN_RUN"):
        return f"{run}/{os.environ['GPURUN_JOB']}"
    return f"{socket.gethostname()}:{Path(sys.argv[-1]).resolve()}"
