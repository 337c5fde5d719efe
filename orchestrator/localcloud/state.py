"""The local cloud's folder: who is running, told by a file and a lock."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.errors import CloudError


@dataclass(frozen=True, kw_only=True)
class CloudState:
    """What a running local cloud says of itself in `state.json`."""

    pid: int
    url: str
    driver: str
    started_at: str
    region: str


def folder_of(home: Path) -> Path:
    return home / "cloud"


def state_path(home: Path) -> Path:
    return folder_of(home) / "state.json"


def log_path(home: Path) -> Path:
    return folder_of(home) / "cloud.log"


def read_state(home: Path) -> CloudState | None:
    """The state as last written, whether or not that process lives; None without one."""
    try:
        return CloudState(**json.loads(state_path(home).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def write_state(home: Path, state: CloudState) -> None:
    """Write it whole: a reader sees the old file, or all of the new one."""
    path = state_path(home)
    new = path.with_name(f"state.json.{state.pid}")
    new.write_text(json.dumps(asdict(state)), "utf-8")
    new.replace(path)


def remove_state(home: Path) -> None:
    state_path(home).unlink(missing_ok=True)


def is_held(home: Path) -> bool:
    """Whether a cloud holds the folder's lock, answering already or still starting."""
    try:
        with (folder_of(home) / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextmanager
def only_one(home: Path) -> Iterator[None]:
    """Hold the folder's lock; raises CloudError while another cloud holds it."""
    folder = folder_of(home)
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CloudError(
                f"a local cloud is running in {folder} already",
                hint="gpurun cloud status shows it, gpurun cloud stop ends it",
            ) from None
        yield
    finally:
        os.close(lock)
