"""A job that is started again has the room of its dead run, however that died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from agent_env.server.owners import MOST_OWNERS, Owner, Owners

from .conftest import Process, Start

TRAINER = """
import sys
import time
from agent_env import AgentEnv
from agent_env.errors import SessionError

env = AgentEnv(sys.argv[1], owner=sys.argv[2], patience=0.0, reset_timeout=5.0)
began = time.monotonic()
if sys.argv[2] == "run/job":
    env.check(sessions=2)
assert time.monotonic() - began < 5, "it waited for sessions that are held for ten seconds"
factory = env.factory_for("eval")
environments = [factory(), factory()]
for one in environments:
    one.reset(split="eval", index=0)
print("began", sum(one._rollout.waited_s for one in environments), flush=True)
for line in sys.stdin:
    for one in environments:
        try:
            one.add(n=5)
        except SessionError as error:
            print(error, flush=True)
        else:
            print(one.get_reward(), flush=True)
"""


class Trainer:
    """A run of a job in a process of its own, with two sessions of the server."""

    def __init__(self, server: Process, owner: str = "run/job") -> None:
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PATH": os.defpath}
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINER, server.url, owner],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None
        self.began = self.process.stdout.readline().strip()

    def step(self) -> list[str]:
        """What its two environments answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return [self.process.stdout.readline().strip() for _ in range(2)]


@contextmanager
def run(server: Process, owner: str = "run/job") -> Iterator[Trainer]:
    trainer = Trainer(server, owner)
    with trainer.process:
        try:
            yield trainer
        finally:
            trainer.process.kill()


@pytest.fixture(params=[[], ["--workers=2"]], ids=["one process", "workers"])
def full(request: pytest.FixtureRequest, start: Start) -> Process:
    """A server that has exactly the room of one run."""
    return start("--max-sessions=2", *request.param)


def test_a_run_whose_trainer_was_killed_has_its_room_at_once(full: Process) -> None:
    with run(full) as killed:
        assert killed.began == "began 0.0"
        killed.process.kill()
        with run(full) as again:
            assert again.began == "began 0.0"
            assert again.step() == ["0.5", "0.5"]


def test_a_run_that_only_hangs_is_replaced_too_and_can_not_come_back(full: Process) -> None:
    with run(full) as hung:
        hung.process.send_signal(signal.SIGSTOP)
        with run(full) as again:
            assert again.began == "began 0.0"
            hung.process.send_signal(signal.SIGCONT)
            assert all("a newer run of 'run/job'" in said for said in hung.step())
            assert again.step() == ["0.5", "0.5"]


def test_another_owners_sessions_are_left_alone(start: Start) -> None:
    full = start("--max-sessions=2")
    with run(full) as first, ExitStack() as stack:
        other = stack.enter_context(run(full, "run/other"))
        assert other.began == ""
        other.process.wait(30)
        assert first.step() == ["0.5", "0.5"]
        assert other.process.stderr is not None
        assert "all 2 sessions are taken" in other.process.stderr.read()


def test_an_older_run_is_turned_away_before_its_handshake_and_over_http(full: Process) -> None:
    newer, older = ({"Agent-Env-Owner": f"job/{run}"} for run in (7, 6))
    assert httpx.get(f"{full.url}/tools", headers=newer).status_code == 200
    assert httpx.get(f"{full.url}/tools", headers=older).status_code == 409
    # A worker hears of it from the front, before it is handed a connection.
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://127.0.0.1:{full.port}/ws", additional_headers=older, proxy=None)
    assert refused.value.response.status_code == 409
    wrong = httpx.get(f"{full.url}/tools", headers={"Agent-Env-Owner": "job"})
    assert (wrong.status_code, wrong.json()["detail"][:15]) == (400, "agent-env-owner")


def test_a_run_is_older_only_to_those_of_the_same_owner() -> None:
    owners = Owners()
    assert owners.learns(Owner("a", 2))
    assert not owners.learns(Owner("a", 2))
    assert not owners.learns(Owner("a", 1))
    assert [owners.admits(Owner("a", n)) for n in (1, 2, 3)] == [False, True, True]
    assert owners.admits(Owner("b", 1))
    assert Owner("a", 2).replaces(Owner("a", 1))
    assert not Owner("a", 2).replaces(Owner("b", 1))
    assert not Owner("a", 2).replaces(None)


def test_only_so_many_owners_are_remembered() -> None:
    owners = Owners()
    for number in range(MOST_OWNERS + 1):
        owners.learns(Owner(f"job-{number}", 5))
    assert len(list(owners)) == MOST_OWNERS
    assert owners.admits(Owner("job-0", 1))
    assert not owners.admits(Owner("job-1", 1))
