"""A server of one's own that is killed at any moment is started again, and no number changes."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent_env import AgentEnv
from agent_env.client import _keeper
from agent_env.client._keeper import KeptServer
from agent_env.client.session import Session
from agent_env.errors import JournalError, ServerDown

from .conftest import COUNTER, eventually


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


def test_without_a_temporary_folder_the_error_says_what_to_do(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "none"))
    with pytest.raises(JournalError, match="set TMPDIR, or give journal="):
        AgentEnv.local(COUNTER)
