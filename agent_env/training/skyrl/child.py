"""SkyRL's own entry point as a child process, with a Ray of its own on this machine.

Ray starts with the child and ends with it. Its clients need a token, which lies outside of the
job's results; nothing is reported to anyone.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from agent_env.training.stopping import StopRequest

ENTRY_POINT = "skyrl.train.entrypoints.main_base"
LOOK_EVERY_S = 1.0
END_TIMEOUT_S = 60.0
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def run(
    words: Sequence[str], stop: StopRequest, stop_file: Path, *, module: str = ENTRY_POINT
) -> int:
    """Its exit status. A request to stop is passed on as `stop_file`; the child then checkpoints
    at its step's end. Whatever ends this call ends the child and all that it started.
    """
    stop_file.unlink(missing_ok=True)
    stop_file.with_suffix(".answered").unlink(missing_ok=True)
    command = [sys.executable, "-m", module, *words]
    with private_ray() as environment, stop.held():
        process = subprocess.Popen(
            command,
            env=environment,
            # A signal to our group must not end it without its checkpoint …
            start_new_session=True,
            # … and ours, whatever it is, must not leave it behind with the GPU.
            preexec_fn=_die_with_parent,
        )
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(LOOK_EVERY_S)
                if stop.asked:
                    stop_file.touch()
        finally:
            _end(process)


@contextmanager
def private_ray() -> Iterator[dict[str, str]]:
    """The environment under which Ray, also one that is started elsewhere, wants a token."""
    with TemporaryDirectory(prefix="gpurun-ray-") as folder:
        token = Path(folder) / "token"
        with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        own = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        yield own | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
        }


def _die_with_parent() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The child's whole group: asked first, then not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_TIMEOUT_S)
