"""A server of one's own never outlives its parent, however that ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent_env import AgentEnv
from agent_env.client.local import LocalServer, StockServer
from agent_env.errors import BundleError, NotInstalled, ServerDown

from .conftest import COUNTER, eventually
from .counter import CounterBundle

ROOT = Path(__file__).parents[2]

PARENT = f"""
import sys, threading
from agent_env.client.local import LocalServer

def serve():
    global server
    server = LocalServer({str(COUNTER)!r})
    print(server.pid, flush=True)

if sys.argv[1] == "thread":
    starter = threading.Thread(target=serve)
    starter.start()
    starter.join()
else:
    serve()
sys.stdin.read()
"""


def alive(pid: int) -> bool:
    """False for a zombie too: nobody may be there to reap an orphan."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@contextmanager
def parent_of_a_server(where: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that has started a server from its main thread or another, and the server's id."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, where],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(ROOT)},
        text=True,
    ) as parent:
        assert parent.stdout is not None
        yield parent, int(parent.stdout.readline())


@pytest.mark.parametrize("where", ["main", "thread"])
def test_a_killed_parent_takes_its_server_along(where: str) -> None:
    with parent_of_a_server(where) as (parent, child):
        assert alive(child)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        eventually(lambda: not alive(child))


def test_a_server_outlives_the_thread_that_started_it() -> None:
    with parent_of_a_server("thread") as (parent, child):
        assert parent.stdin is not None
        assert Path(f"/proc/{child}").exists()
        assert alive(child)
        parent.stdin.close()
        assert parent.wait(10) == 0
        eventually(lambda: not alive(child))


def test_closing_the_client_ends_its_server() -> None:
    with AgentEnv.local(COUNTER, max_sessions=2, reset_timeout=5.0) as env:
        assert env._server is not None
        assert env.session().reset(split="eval", index=0).done is False
        pid = env._server.pid
    assert not alive(pid)


def test_a_server_that_can_not_start_says_why(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with pytest.raises(ServerDown, match="ended at its start, exit status 1: no bundle 'no-such"):
        LocalServer("no-such-bundle", log=log)
    assert "no bundle 'no-such-bundle'" in log.read_text()


def test_whatever_keeps_a_server_from_starting_is_in_the_error(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with pytest.raises(ServerDown, match="exit status 2: argument --max-sessions: 0 is outs"):
        LocalServer(COUNTER, max_sessions=0, log=log)
    with pytest.raises(ServerDown, match="exit status 1: --reward: the reward is 'nope'"):
        LocalServer(COUNTER, reward="nope", log=log)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "__init__.py").write_text("import sys; sys.exit('no licence')\n")
    with pytest.raises(ServerDown, match="no licence"):
        LocalServer(broken, log=log)


def test_a_bundle_that_only_this_process_knows_is_refused() -> None:
    with pytest.raises(BundleError, match="give a bundle's name"):
        LocalServer(CounterBundle())


def test_a_server_takes_its_old_port_back_at_once() -> None:
    first = LocalServer(COUNTER)
    with AgentEnv(first.url) as env:
        env.session().reset()
        first.kill()
        with LocalServer(COUNTER, port=first.port) as second:
            assert second.url == first.url
            assert env.session().reset().done is False


def test_openenvs_own_server_names_the_package_it_needs() -> None:
    with pytest.raises(NotInstalled, match=r"make openenv-setup, or pip install '\.\[openenv\]'"):
        StockServer(COUNTER)
