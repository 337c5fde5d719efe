"""Children of a box's first process: started, their output kept, every ended one reaped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

Ended = Callable[[int], None]


class Processes:
    """Belongs to the running event loop; also reaps orphans that came to this process."""

    def __init__(self) -> None:
        self._children: dict[int, Ended] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)

    def start_sshd(self, spec: Path, env: Mapping[str, str]) -> None:
        """Once there is a host key, or user data has ended without writing one."""
        self._tasks.add(asyncio.create_task(self._start_sshd(spec, env)))

    async def _start_sshd(self, spec: Path, env: Mapping[str, str]) -> None:
        known = json.loads(spec.read_text())
        signs = [Path(known["host_key"]), Path(known["boot_finished"])]
        while not any(sign.exists() for sign in signs):
            await asyncio.sleep(0.05)
        argv = [sys.executable, "-B", "-m", "orchestrator.localcloud.guest.sshd", str(spec)]
        child = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL)
        self._children[child.pid] = lambda code: log(f"ssh server ended: {code}")

    def start_user_data(
        self, instance: Path, output: Path, env: Mapping[str, str], cwd: str
    ) -> None:
        """Run `user-data.txt` of the instance's folder as cloud-init runs a script."""
        script = instance / "user-data.txt"

        def booted(code: int) -> None:
            log(f"user data ended: {code}")
            (instance / "boot-finished").write_text(f"{code}\n")

        if not script.read_bytes().startswith(b"#!"):
            log("user data is no script: nothing to run")
            booted(0)
            return
        script.chmod(0o700)
        out, into = os.pipe()
        child = subprocess.Popen(
            [str(script)],
            stdin=subprocess.DEVNULL,
            stdout=into,
            stderr=into,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
        os.close(into)
        self._children[child.pid] = booted
        self._tasks.add(asyncio.create_task(_tee(out, output)))

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                ended = self._children.pop(found[0], None)
                if ended is not None:
                    ended(os.waitstatus_to_exitcode(found[1]))


async def _tee(fd: int, output: Path) -> None:
    """Copy user data's output to its log in the box and to the console."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    with os.fdopen(fd, "rb", buffering=0) as source:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
        with output.open("ab", buffering=0) as kept:
            while data := await reader.read(65536):
                kept.write(data)
                sys.stdout.buffer.write(data)
                sys.stdout.flush()


def log(words: str) -> None:
    """One line on the box's console."""
    sys.stdout.write(f"[box] {words}\n")
    sys.stdout.flush()
