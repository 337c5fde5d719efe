"""A trainer on Ray as a child process, with a Ray of its own on this machine.

Ray starts with the child and ends with it. It listens to this machine alone, and its clients need
a token, which lies outside of the job's results; nothing is reported to anyone. `ray up`, which
makes its own roles and rules, never runs.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

LOOK_EVERY_S = 1.0
END_TIMEOUT_S = 60.0
PR_SET_PDEATHSIG = 1  # linux/prctl.h
ADDRESS = "RAY_ADDRESS"
"""The variable that names a cluster to join."""
# Ray's own name for it, on Linux too: without clusters a node's address is 127.0.0.1, and every
# part of it listens there alone.
_ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


@contextmanager
def private_ray() -> Iterator[dict[str, str]]:
    """The environment under which a Ray that the child starts wants a token of its clients, and
    listens to this machine alone.
    """
    with TemporaryDirectory(prefix="gpurun-ray-") as folder:
        token = Path(folder) / "token"
        with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        own = {name: value for name, value in os.environ.items() if name != ADDRESS}
        told = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
        yield own | told | _ALONE | {"RAY_USAGE_STATS_ENABLED": "0"}


@contextmanager
def named_or_private_ray() -> Iterator[dict[str, str]]:
    """The same, unless RAY_ADDRESS names a cluster: then that one's own settings stay."""
    if ADDRESS in os.environ:
        yield {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    else:
        with private_ray() as environment:
            yield environment


def run(
    module: str,
    words: Sequence[str],
    environment: Mapping[str, str],
    *,
    look: Callable[[], None],
    folder: Path | None = None,
) -> int:
    """Run the module to its end, in that folder, and return its exit status.

    `look` is called each second, and once more at the end. Whatever ends this call ends the child
    and all that it started.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module, *words],
        cwd=folder,
        env=environment,
        # A signal to our group must not end it without its checkpoint …
        start_new_session=True,
        # … and ours, whatever it is, must not leave it behind with the GPU.
        preexec_fn=_die_with_parent,
    )
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                status = process.wait(LOOK_EVERY_S)
                look()
                return status
            look()
    finally:
        _end(process)


def _die_with_parent() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The child's whole group: asked first, then not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_TIMEOUT_S)
