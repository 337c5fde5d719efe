"""The first process of a plain-process box: the parent of all the others, also of orphans.

It ends with the cloud that started it (PR_SET_PDEATHSIG), taking its family along.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from orchestrator.localcloud.guest.families import end_family
from orchestrator.localcloud.guest.processes import Processes, log

# From linux/prctl.h.
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


async def run(spec: dict[str, Any]) -> None:
    _adopt_orphans(int(spec["parent"]))
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    # Opened for writing too, so that a caller's close is no end of file.
    control = os.open(spec["control"], os.O_RDWR | os.O_NONBLOCK)

    def power_off() -> None:
        os.read(control, 4096)
        Path(spec["powered_off"]).touch()
        over.set()

    loop.add_reader(control, power_off)
    processes = Processes()
    processes.start_sshd(Path(spec["sshd_file"]), spec["sshd_env"])
    processes.start_user_data(
        Path(spec["instance"]), Path(spec["output"]), spec["env"], spec["home"]
    )
    await over.wait()
    log("power off")
    end_family(os.getpid(), spec["marker"], spare=os.getpid())


def _adopt_orphans(parent: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit("the cloud ended before its box began")


if __name__ == "__main__":
    asyncio.run(run(json.loads(Path(sys.argv[1]).read_text())))
