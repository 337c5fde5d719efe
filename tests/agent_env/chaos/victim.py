"""The server as a process at one address, which is killed, asked to stop, or frozen."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

BOOT_S = 30.0
LOOK_EVERY_S = 0.02


class Victim:
    """Starts over with the same journal at the same port; its log is `server.log` beside it."""

    def __init__(
        self, bundles: Sequence[str], folder: Path, *, sessions: int, workers: int
    ) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._folder = folder
        self._command = [
            *(sys.executable, "-m", "agent_env.server", *bundles),
            *(f"--port={self.port}", f"--max-sessions={sessions}"),
            f"--journal={folder / 'journal'}",
            *([f"--workers={workers}"] if workers else []),
        ]
        self.start()

    def start(self) -> None:
        """Returns once it is healthy."""
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.DEVNULL, stderr=log, process_group=0
            )
        self.wait()

    def wait(self) -> None:
        """Until it answers that it is healthy; the bound is for a server that never does."""
        deadline = time.monotonic() + BOOT_S
        while not self._healthy():
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = (self._folder / "server.log").read_text()[-2000:]
                raise RuntimeError(f"the server isn't healthy:\n{log}")
            threading.Event().wait(LOOK_EVERY_S)

    def kill(self) -> None:
        """As a power cut would."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """As a person would; it ends by itself."""
        self._process.terminate()
        self._process.wait(BOOT_S)

    def freeze(self) -> None:
        """As a machine that swaps would, until `thaw`."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def __enter__(self) -> Victim:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _healthy(self) -> bool:
        url = f"http://127.0.0.1:{self.port}/health"
        with suppress(OSError), urllib.request.urlopen(url, timeout=5) as reply:
            return bool(reply.status == 200)
        return False
