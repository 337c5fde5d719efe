"""A server of one's own that is killed at any moment is started again, and no number changes."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from agent_env import AgentEnv
from agent_env.client import _keeper, local
from agent_env.client._keeper import KeptServer
from agent_env.client._scratch import Scratch
from agent_env.client.session import Session
from agent_env.errors import JournalError, ServerDown, SessionLost

from .conftest import COUNTER, eventually

ROOT = Path(__file__).parents[2]


def alive(pid: int) -> bool:
    """False for a zombie too: nobody may be there to reap an orphan."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def strike(env: AgentEnv, number: signal.Signals = signal.SIGKILL) -> int:
    """End its server as the kernel would; its process id."""
    assert env._server is not None
    pid = env._server.pid
    os.kill(pid, number)
    return pid


def play(session: Session, index: int, between: threading.Barrier | None = None) -> float | None:
    """An episode of three steps; the barrier stands between the first and the second."""
    session.reset(split="eval", index=index % 4)
    session.call_tool("add", {"n": 3 + index})
    if between is not None:
        between.wait(30)
        between.wait(30)
    session.call_tool("add", {"n": 2})
    return session.call_tool("commit", {}).reward


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where journals of one's own are made, so that a test sees what is left of them."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_sixteen_episodes_go_on_where_they_were_when_their_server_is_killed(
    temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with AgentEnv.local(COUNTER, max_sessions=16) as env:
        undisturbed = [play(env.session(), index) for index in range(16)]
        gc.collect()  # their slots
        between = threading.Barrier(17)
        sessions = [env.session() for _ in range(16)]
        with ThreadPoolExecutor(16) as pool:
            played = pool.map(play, sessions, range(16), [between] * 16)
            between.wait(30)
            killed = strike(env)
            between.wait(30)
            rewards = list(played)
        assert rewards == undisturbed
        assert [session.epoch for session in sessions] == [1] * 16
        assert env._server is not None
        assert (env.restarts, env._server.pid != killed) == (1, True)
        url = env.url
    assert capsys.readouterr().err == (
        f"the env server at {url} was killed by SIGKILL, as if out of memory; it was started"
        " again, the first time\n"
    )
    assert list(temporary.iterdir()) == []


def test_it_is_waited_for_before_the_first_session_wherever_the_process_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(COUNTER.parent)
    with AgentEnv.local("counter", max_sessions=2, log=tmp_path / "log") as env:
        monkeypatch.chdir(tmp_path)
        strike(env, signal.SIGSEGV)
        assert len(env.tasks("eval")) == 4
        strike(env)
        assert play(env.session(), 0) == 0.5
        assert env.restarts == 2


@contextmanager
def doomed(log: Path) -> Iterator[AgentEnv]:
    """One that is given up at its second death."""
    server = KeptServer(COUNTER, max_sessions=2, log=log, most_deaths=2)
    with AgentEnv.of(server) as env:
        yield env


def test_one_that_dies_again_and_again_is_given_up_by_name(tmp_path: Path) -> None:
    with doomed(tmp_path / "server.log") as env:
        environment = env.factory()
        row, other = env.rows("eval")[:2]
        environment.reset(**row)
        strike(env)
        eventually(lambda: env.restarts == 1)
        assert environment.add(n=1) == "1"
        strike(env, signal.SIGABRT)
        began = time.monotonic()
        with pytest.raises(Exception, match="2 times in a row it ended within 60 s of its start"):
            environment.add(n=1)
        assert environment.get_reward() is None
        assert environment.reset(**other) is None
        assert environment.get_reward() is None
        # The stacks that a crash in C leaves are the end of its log.
        assert "at last it was killed by SIGABRT; the end of " in environment._rollout.lost
        assert "server/__main__.py" in environment._rollout.lost
        with pytest.raises(ServerDown, match="isn't started again"):
            env.check(sessions=1)
        # Nobody sat through the wait for a server that restarts.
        assert time.monotonic() - began < 20
        assert env.restarts == 1


def test_one_that_can_not_start_again_is_given_up_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_keeper, "_PAUSE_S", 0.01)
    monkeypatch.setattr(_keeper, "STARTS", 2)
    folder = tmp_path / "spoiled"
    folder.mkdir()
    code = folder / "__init__.py"
    code.write_text((COUNTER / "__init__.py").read_text())
    with AgentEnv.local(folder, max_sessions=2) as env:
        session = env.session()
        session.reset()
        code.write_text("import sys; sys.exit('no licence')\n")
        strike(env)
        with pytest.raises(ServerDown, match=r"killed by SIGKILL.*, and then: .*no licence"):
            session.call_tool("add", {"n": 1})


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
    began = time.monotonic()
    env.close()
    assert time.monotonic() - began < 10
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
        eventually(lambda: not alive(server), within_s=5.0)
        assert alive(fork)
    # It couldn't clear up after itself; whoever comes next does.
    assert len(list(temporary.iterdir())) == 1
    eventually(lambda: not alive(fork))
    with closing_scratch() as ours:
        assert list(temporary.iterdir()) == [ours.path]
        Scratch().remove()
        assert ours.path.exists()


def test_without_a_temporary_folder_the_error_says_what_to_do(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "none"))
    with pytest.raises(JournalError, match="set TMPDIR, or give journal="):
        AgentEnv.local(COUNTER)


@contextmanager
def closing_scratch() -> Iterator[Scratch]:
    scratch = Scratch()
    try:
        yield scratch
    finally:
        scratch.remove()
