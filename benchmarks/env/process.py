"""A server under measurement: its process and everything under it, read from the kernel."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

START_TIMEOUT_S = 60.0
LOOK_EVERY_S = 0.005


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """Started at once; `boot_s` is from the start of the process to the first healthy answer.

    `waited_s` of it the process was ready to run and had no core: other programs' doing.
    """

    def __init__(self, command: list[str], port: int, *, cwd: Path) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        began = time.monotonic()
        self._process = subprocess.Popen(
            [*command, "--port", str(port)],
            cwd=cwd,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while not self._healthy():
                if self._process.poll() is not None or time.monotonic() > began + START_TIMEOUT_S:
                    raise RuntimeError(f"it didn't start: {' '.join(command)}")
                time.sleep(LOOK_EVERY_S)
        except BaseException:
            self.kill()
            raise
        self.healthy_at = time.monotonic()
        self.boot_s = self.healthy_at - began
        self.waited_s = _waited_s(self._process.pid)

    def kill(self) -> None:
        """End it as a power cut would; its workers go with it or were told to."""
        self._process.kill()
        self._process.wait()

    def cpu_s(self) -> float:
        """CPU seconds that it has used so far, user and system, all its threads and workers."""
        return sum(time.clock_gettime(_cpu_clock(pid)) for pid in self._pids())

    def pss_kb(self) -> int:
        """Proportional set size: what the kernel would get back, pages shared by workers once."""
        return sum(_field(pid, "smaps_rollup", "Pss") for pid in self._pids())

    def rss_kb(self) -> int:
        """Resident set size, summed; pages shared by workers count in each."""
        return sum(_field(pid, "status", "VmRSS") for pid in self._pids())

    def threads(self) -> int:
        """Threads of all its processes."""
        return sum(_field(pid, "status", "Threads") for pid in self._pids())

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _healthy(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{self.url}/health", timeout=5) as reply:
            return bool(reply.status == 200)
        return False

    def _pids(self) -> list[int]:
        return [self._process.pid, *_below(self._process.pid)]


def _below(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            yield child
            yield from _below(child)


def _cpu_clock(pid: int) -> int:
    """The kernel's clock id for another process's CPU time: clock_getcpuclockid(3)."""
    return (~pid << 3) | 2


def _waited_s(pid: int) -> float:
    """Seconds on a run queue, of the main thread: schedstat in proc(5); 0 where it isn't kept."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def _field(pid: int, file: str, name: str) -> int:
    text = Path(f"/proc/{pid}/{file}").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name}:"))


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
