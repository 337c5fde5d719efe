"""Starting, asking and stopping the local cloud from another process, by its state file.

`start` leaves a process that outlives the caller. Nothing here imports moto: it costs seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.errors import CloudError
from orchestrator.localcloud.state import CloudState, folder_of, is_held, log_path, read_state

_START_S, _STOP_S, _POLL_S, _ASK_S = 60.0, 30.0, 0.05, 5.0


def start(
    home: Path,
    *,
    port: int = 0,
    driver: str = "auto",
    wheels: Path | None = None,
    region: str = "us-east-1",
    as_root: bool = False,
) -> CloudState:
    """The running cloud of this home, started when there is none; returns when it answers.

    Raises CloudError with the end of the cloud's log when it doesn't come up.
    """
    if running := status(home):
        return running
    argv = [sys.executable, "-m", "orchestrator.localcloud", "--home", str(home.absolute())]
    argv += ["--port", str(port), "--driver", driver, "--region", region]
    argv += ["--wheels", str(wheels.absolute())] if wheels is not None else []
    argv += ["--as-root"] if as_root else []
    try:
        folder_of(home).mkdir(parents=True, exist_ok=True)
        child = _spawn(argv, log_path(home))
    except OSError as error:
        raise CloudError(
            f"the local cloud can't be kept in {folder_of(home)}: {error.strerror or error}",
            hint="Name a folder that can be written: GPURUN_HOME=DIR",
        ) from error
    _wait_for(lambda: status(home) is not None or _ended(child, home), _START_S)
    state = status(home)
    if state is None:
        raise CloudError(f"the local cloud didn't come up in {_START_S:g} s", hint=_tail(home))
    return state


def status(home: Path) -> CloudState | None:
    """The state of the cloud that runs from this home and answers, or None."""
    state = read_state(home)
    return state if state is not None and _health_pid(state.url) == state.pid else None


def running(home: Path) -> dict[str, int]:
    """How many boxes each run has on the cloud of this home; nothing where no cloud answers."""
    state = read_state(home)
    health = _health(state.url) if state is not None else {}
    return {str(run): int(boxes) for run, boxes in health.get("running", {}).items()}


def stop(home: Path) -> bool:
    """End the cloud of this home, and every box with it; False when none was running.

    Raises CloudError when it is still there after SIGTERM and SIGKILL.
    """
    state = read_state(home)
    if state is None or not _is_ours(state, home):
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(state.pid, number)
        if _wait_for(lambda: _is_gone(state.pid), _STOP_S):
            return True
    raise CloudError(f"the local cloud (pid {state.pid}) doesn't end", hint=_tail(home))


def _is_ours(state: CloudState, home: Path) -> bool:
    """Whether that pid is alive and is a local cloud of this home: pids are used again."""
    try:
        words = Path(f"/proc/{state.pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return not Path("/proc").exists() and _health_pid(state.url) == state.pid
    return b"orchestrator.localcloud" in words and os.fsencode(home.absolute()) in words


def _is_gone(pid: int) -> bool:
    """Whether no such process is left; one that is this process's own child is reaped here."""
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except ProcessLookupError:
        return True
    except FileNotFoundError:
        return Path("/proc").exists()


def _health_pid(url: str) -> int | None:
    try:
        return int(_health(url)["pid"])
    except (ValueError, KeyError):
        return None


def _health(url: str) -> dict[str, Any]:
    """What the cloud says of itself; nothing when it doesn't answer."""
    # A proxy that the environment names is no way to this machine's own loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/_gpurun/health", timeout=_ASK_S) as answer:
            said = json.load(answer)
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def _spawn(argv: list[str], log: Path) -> int:
    """A process that nothing of the caller's holds on to: its session, its files are its own."""
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawn(argv[0], argv, os.environ, file_actions=files, setsid=True)


def _ended(child: int, home: Path) -> bool:
    """Raise once the child has ended and no other cloud runs or starts in its place."""
    with contextlib.suppress(ChildProcessError):
        if os.waitpid(child, os.WNOHANG)[0] == 0:
            return False
    if not is_held(home):
        raise CloudError("the local cloud didn't start", hint=_tail(home))
    return False


def _wait_for(look: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if look():
            return True
        time.sleep(_POLL_S)
    return False


def _tail(home: Path) -> str:
    with contextlib.suppress(OSError):
        lines = log_path(home).read_text("utf-8", "replace").splitlines()
        return "\n  ".join([f"End of {log_path(home)}:", *lines[-8:]])
    return ""
