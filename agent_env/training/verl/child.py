"""verl's own entry point as a child process, with a Ray of its own on this machine.

Ray is started by the child and ends with it: a token keeps others out, the dashboard listens on
loopback, and nothing is told to anyone. `ray up`, which makes its own roles and rules, never runs.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from agent_env.training.verl.overrides import word

LOOK_EVERY_S = 1.0
STOP_TIMEOUT_S = 60.0


def ray_environment(folder: Path) -> dict[str, str]:
    """The variables under which Ray wants a token of its clients, and reports nothing.

    The token is written into the folder, readable by this user alone. Where RAY_ADDRESS names a
    cluster, that one's own settings stay.
    """
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
    if "RAY_ADDRESS" in os.environ:
        return quiet
    token = folder / "ray-token"
    token.unlink(missing_ok=True)
    with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    return quiet | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}


def run(words: Sequence[str], *, folder: Path, metrics: Path, look: Callable[[], None]) -> int:
    """Run `verl.trainer.main_ppo` to its end and return its exit status.

    `look` is called each second, and once more at the end. Whatever ends this call ends the child
    and everything that it started.
    """
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *words]
    command += [word("hydra.run.dir", str(folder)), word("hydra.output_subdir", None)]
    told = {"VERL_FILE_LOGGER_PATH": str(metrics), "HYDRA_FULL_ERROR": "1"}
    environment = os.environ | ray_environment(folder) | told
    process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True)
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                status = process.wait(LOOK_EVERY_S)
                look()
                return status
            look()
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the child's whole group: asked first, then not."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
            break
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
