"""An env server of one's own: a child process on loopback that dies with its parent.

Two ties hold it, since each fails alone: the kernel's parent-death signal (not asked for from a
thread that may end sooner than the child) and a pipe on the child's stdin.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from agent_env.bundle import Bundle
from agent_env.errors import BundleError, NotInstalled, ServerDown

BundleRef = str | Path | Bundle

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 6.0


class LocalServer:
    """A running `python -m agent_env.server`; `with` stops it at the end."""

    _module: ClassVar[str] = "agent_env.server"

    def __init__(
        self,
        bundle: BundleRef | Sequence[BundleRef],
        *,
        port: int = 0,
        max_sessions: int = 64,
        reward: str | None = None,
        journal: Path | None = None,
        log: Path | None = None,
    ) -> None:
        """Start it and wait until it listens.

        Several bundles are served together, as `build_app` does. `port` 0 takes a free one; a
        server started again on the port of the one before is found by its clients, and continues
        their episodes if both were given the same `journal` folder. Its log goes to the file
        `log`, else to this process's stderr. Raises ServerDown when it ends or doesn't listen
        within 60 s.
        """
        bundles = [bundle] if isinstance(bundle, str | Path | Bundle) else bundle
        self._options = [*map(_reference, bundles), f"--max-sessions={max_sessions}"]
        if reward is not None:
            self._options.append(f"--reward={reward}")
        if journal is not None:
            self._options.append(f"--journal={journal}")
        # It is started again as it was, wherever this process has gone meanwhile.
        self._folder = Path.cwd()
        self.log = log and log.absolute()
        self._over = False
        self._start(port, tied=threading.current_thread() is threading.main_thread())

    def _start(self, port: int, *, tied: bool, kept: bool = False) -> None:
        ready, announce = os.pipe()
        try:
            options = [self._module, *self._options, f"--port={port}"]
            self._process = _spawn(options, announce, self.log, self._folder, tied=tied)
        except BaseException:
            os.close(ready)
            raise
        finally:
            os.close(announce)
        self._stop = weakref.finalize(self, _stop, self._process, os.getpid())
        self._stop.atexit = not kept
        if self._over:  # stopped by another thread before there was anything to stop
            self._stop()
        try:
            self.port = _announced_port(ready, self._process)
        except ServerDown:
            self._stop()
            raise
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """False once the child has ended."""
        return self._process.poll() is None

    @property
    def over(self) -> bool:
        """Whether it was ended through this object: then it isn't to be revived."""
        return self._over

    def stop(self) -> None:
        """End it gracefully: running steps reply first. Safe to call twice."""
        self._over = True
        self._stop()

    def kill(self) -> None:
        """End it as a power cut would."""
        self._over = True
        self._process.kill()
        self._stop()

    def restart(self) -> None:
        """Start it again as it was, on the same port; one that still runs is killed first."""
        self.kill()
        self._over = False
        self._start(self.port, tied=threading.current_thread() is threading.main_thread())

    def wait(self) -> int:
        """Until the child has ended; its exit status, below 0 the signal that ended it."""
        return self._process.wait()

    def revive(self) -> None:
        """Start it again after it ended by itself, unless it is `over`.

        For a thread that lives longer than the server, and looks after it. Raises ServerDown.
        """
        self._stop()
        if not self._over:
            # Whoever looks after it also stops it when this process ends, and so isn't surprised.
            self._start(self.port, tied=True, kept=True)

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class StockServer(LocalServer):
    """OpenEnv's own server over the same bundles: a session ends with it, and with its socket.

    It takes seconds to start. Raises NotInstalled without the package openenv.
    """

    _module = "agent_env.server.stock"

    def __init__(self, bundle: BundleRef | Sequence[BundleRef], *, max_sessions: int = 64) -> None:
        if find_spec("openenv") is None:
            raise NotInstalled("OpenEnv's own server isn't here", extra="openenv")
        super().__init__(bundle, max_sessions=max_sessions)


def _spawn(
    options: list[str], announce: int, log: Path | None, folder: Path, *, tied: bool
) -> subprocess.Popen[bytes]:
    # A crash in C leaves the stacks of its threads in the log.
    command = [sys.executable, "-X", "faulthandler", "-m", *options]
    command += [f"--ready-fd={announce}", "--with-parent"]
    if tied:
        command.append(f"--parent-pid={os.getpid()}")
    # The child must find what the parent could import: a bundle may live anywhere on its path.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    output = log.open("ab") if log else None
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stderr=output,
            pass_fds=[announce],
            cwd=folder,
            env=environment,
            # A signal to the trainer's group asks the trainer to stop, not the server under it.
            process_group=0,
        )
    finally:
        if output is not None:
            output.close()


def _announced_port(ready: int, process: subprocess.Popen[bytes]) -> int:
    with os.fdopen(ready) as pipe:
        readable, _, _ = select.select([pipe], [], [], START_TIMEOUT_S)
        line = pipe.readline() if readable else ""
    told = json.loads(line) if line else {}
    if "port" in told:
        return int(told["port"])
    if not readable:
        raise ServerDown(f"the env server didn't listen within {START_TIMEOUT_S:.0f} s")
    try:
        status = process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise ServerDown("the env server hangs at its start; see its log") from None
    why = told.get("error", "see its log")
    raise ServerDown(f"the env server ended at its start, exit status {status}: {why}")


def _stop(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:  # a forked copy of this process ends; the server isn't its own
        return
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _reference(bundle: BundleRef) -> str:
    """How another process names the bundle; an object is looked up where its class was defined."""
    if not isinstance(bundle, Bundle):
        return str(bundle)
    module = sys.modules[type(bundle).__module__]
    for name, value in vars(module).items():
        if value is bundle and module.__name__ != "__main__":
            return f"{module.__name__}:{name}"
    raise BundleError(
        f"the bundle {bundle.name!r} isn't a name in its module, so another process can't load"
        " it; give a bundle's name, module:attribute or a folder"
    )
