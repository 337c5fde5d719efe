"""A server of one's own ends with its owner, at whatever moment and however that one ends."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from agent_env import AgentEnv
from agent_env.client import local
from agent_env.client._scratch import Scratch
from agent_env.client.local import LocalServer
from agent_env.errors import SessionLost

from .conftest import COUNTER, eventually
from .kept_test import strike, temporary
from .local_test import alive

__all__ = ["temporary"]

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("moment", ["dead", "starting", "up"])
def test_a_close_leaves_nothing_at_whatever_moment(moment: str, temporary: Path) -> None:
    env = AgentEnv.local(COUNTER, max_sessions=1)
    server = env._server
    assert server is not None
    killed = strike(env)
    if moment != "dead":
        eventually(lambda: server.pid != killed)
    if moment == "up":
        eventually(lambda: env.restarts == 1)
    env.close()
    assert not alive(server.pid)
    assert not server._keeper._thread.is_alive()
    assert list(temporary.iterdir()) == []
    with pytest.raises(SessionLost):
        env.session().reset()


def test_a_close_ends_what_is_being_started(monkeypatch: pytest.MonkeyPatch) -> None:
    env = AgentEnv.local(COUNTER, max_sessions=1)
    assert env._server is not None
    keeper, spawn = env._server._keeper, local._spawn
    spawned, goes_on = threading.Event(), threading.Event()
    started: list[subprocess.Popen[bytes]] = []

    def slowly(*what: Any, **how: Any) -> subprocess.Popen[bytes]:
        started.append(spawn(*what, **how))
        spawned.set()
        assert goes_on.wait(20)
        return started[0]

    monkeypatch.setattr(local, "_spawn", slowly)
    strike(env)
    assert spawned.wait(20)
    with ThreadPoolExecutor(1) as pool:
        closed = pool.submit(env.close)
        eventually(lambda: keeper.server.over)
        goes_on.set()
        closed.result(10)
    assert (started[0].poll() is None, keeper._thread.is_alive()) == (False, False)


def test_a_close_just_before_a_new_start_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    revive = LocalServer.revive

    def closed_first(server: LocalServer) -> None:
        server.stop()
        revive(server)

    monkeypatch.setattr(LocalServer, "revive", closed_first)
    with closing(AgentEnv.local(COUNTER, max_sessions=1)) as env:
        assert env._server is not None
        strike(env)
        env._server._keeper._thread.join(30)
        assert (env._server._keeper._thread.is_alive(), env.restarts) == (False, 0)
    assert capsys.readouterr().err == ""


def test_one_that_is_killed_on_purpose_stays_dead() -> None:
    with closing(AgentEnv.local(COUNTER, max_sessions=1)) as env:
        assert env._server is not None
        keeper = env._server._keeper
        keeper.server.kill()
        keeper._thread.join(10)
        assert not keeper._thread.is_alive()
        assert (keeper.server.running, env.restarts, keeper.gave_up) == (False, 0, None)


def test_a_forgotten_client_has_no_server() -> None:
    env = AgentEnv.local(COUNTER, max_sessions=1)
    assert env._server is not None
    pid = env._server.pid
    del env
    gc.collect()
    eventually(lambda: not alive(pid))


OWNER = f"""
import os, signal, sys, time
from agent_env import AgentEnv

env = AgentEnv.local({str(COUNTER)!r}, max_sessions=1)
first = env._server.pid
os.kill(first, signal.SIGKILL)
if "starting" in sys.argv:
    while env._server.pid == first:
        time.sleep(0.001)
else:
    while not env.restarts:
        time.sleep(0.01)
holder = 0
if "forks" in sys.argv and (holder := os.fork()) == 0:
    signal.pause()
print(env._server.pid, holder, flush=True)
if "waits" in sys.argv:
    sys.stdin.read()
"""


@contextmanager
def owner(temporary: Path, *how: str) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """A process whose server was killed once; with the server's id, and that of a fork."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, *how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        text=True,
    ) as process:
        assert process.stdout is not None
        server, fork = map(int, process.stdout.readline().split())
        try:
            yield process, server, fork
        finally:
            process.kill()
            if fork:
                with suppress(ProcessLookupError):
                    os.kill(fork, signal.SIGKILL)


@pytest.mark.parametrize("when", ["up", "starting"])
def test_an_interpreter_that_ends_leaves_no_server_and_hangs_nowhere(
    when: str, temporary: Path
) -> None:
    with owner(temporary, when) as (process, server, _):
        assert process.wait(20) == 0
        assert not alive(server)
    assert list(temporary.iterdir()) == []


def test_a_killed_owner_takes_along_the_server_that_was_started_again(temporary: Path) -> None:
    # The fork has the other end of the server's stdin: only the kernel's tie is left.
    with owner(temporary, "forks", "waits") as (process, server, fork):
        assert alive(server)
        process.kill()
        process.wait()
        eventually(lambda: not alive(server))
        assert alive(fork)
    # It couldn't clear up after itself; whoever comes next does.
    assert len(list(temporary.iterdir())) == 1
    eventually(lambda: not alive(fork))
    with closing_scratch() as ours:
        assert list(temporary.iterdir()) == [ours.path]
        Scratch().remove()
        assert ours.path.exists()


@contextmanager
def closing_scratch() -> Iterator[Scratch]:
    scratch = Scratch()
    try:
        yield scratch
    finally:
        scratch.remove()
