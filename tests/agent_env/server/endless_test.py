"""A step that never ends: the log says which it is, other sessions go on, a stop is a stop."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from ..conftest import eventually
from .conftest import Player, Process, Start, action, reason, session
from .rebuilt_test import bundle_of
from .workers_test import workers_of

ENDLESS = "[None for _ in iter(int, 1)]"
LOCKED = (
    "[__import__('ctypes').CDLL(None).pthread_mutex_lock(m)"
    " for m in [__import__('ctypes').create_string_buffer(64)] for _ in 'ab']"
)
"""Waits in C, where other threads run but no handler of a signal does."""

pytestmark = pytest.mark.timeout(180)


def stuck(start: Start, folder: Path, *options: str, said: str = ENDLESS) -> Process:
    """A server with a quick task at a step that never ends, and its session that began it."""
    bundle = bundle_of(folder / "b", said=said, more="quick = True")
    server = start(*options, bundle=bundle, log=folder / "log")
    player = Player(server, "session-1")
    player.begin(split="all")
    if options:
        Player(server, "session-2").begin(split="all")
    player.send("step", **action("look", {}, seq=1, deadline_s=0.5))
    return server


def logged(folder: Path, text: str, within_s: float = 10.0) -> None:
    eventually(lambda: text in (folder / "log").read_text(), within_s)


@pytest.mark.parametrize("said", [ENDLESS, LOCKED], ids=["in Python", "in C"])
def test_a_server_that_a_step_holds_up_names_it_and_ends_when_told_to(
    start: Start, tmp_path: Path, said: str
) -> None:
    server = stuck(start, tmp_path, said=said)
    logged(tmp_path, "look of the task played-0 says quick, but holds up every session")
    assert f"{tmp_path / 'b' / '__init__.py'}:" in (tmp_path / "log").read_text()
    server.signal(signal.SIGTERM)
    assert server.wait(6.0) == 1
    assert "SIGTERM: the server doesn't end by itself" in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_a_worker_that_a_step_holds_up_is_ended_and_its_other_sessions_go_on(
    start: Start, tmp_path: Path
) -> None:
    server = stuck(start, tmp_path, f"--journal={tmp_path / 'j'}", "--workers=1")
    (old,) = workers_of(server)
    eventually(lambda: workers_of(server) not in ([old], []), within_s=10.0)
    assert "look of the task played-0 doesn't end" in (tmp_path / "log").read_text()
    good = Player(server, "session-2", "")
    assert session(good.ask("step", type="list_tools", metadata={"seq": 1}))["seq"] == 1
    # Sent again, the step runs in a thread, where its deadline is heard.
    bad = Player(server, "session-1", "")
    again = bad.ask("step", **action("look", {}, seq=1, deadline_s=0.5))
    assert reason(again) == "STEP_TIMEOUT"
    logged(tmp_path, "look of the task played-0 takes longer than its deadline")


def test_a_stop_takes_no_longer_for_a_worker_that_a_step_holds_up(
    start: Start, tmp_path: Path
) -> None:
    server = stuck(start, tmp_path, "--workers=1")
    logged(tmp_path, "holds up every session")
    server.signal(signal.SIGTERM)
    server.wait(5.0)


@pytest.mark.slow
def test_a_worker_that_lets_no_thread_run_is_ended_and_the_log_has_its_stack(
    start: Start, tmp_path: Path
) -> None:
    server = stuck(start, tmp_path, "--workers=1", said="str(10**10**8)")
    (old,) = workers_of(server)
    eventually(lambda: workers_of(server) not in ([old], []), within_s=20.0)
    said = (tmp_path / "log").read_text()
    assert "is silent for 10 s" in said
    assert f'File "{tmp_path / "b" / "__init__.py"}", line' in said
    assert "in look" in said


def test_a_server_that_waits_for_nothing_still_ends_as_it_did(start: Start) -> None:
    server = start()
    player = Player(server, "session-1")
    player.begin()
    server.signal(signal.SIGTERM)
    with pytest.raises(ConnectionClosed) as closed:
        player.receive()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1012
    assert server.wait(5.0) == -signal.SIGTERM
