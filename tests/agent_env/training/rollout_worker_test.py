"""What a rollout worker's process is, apart from TRL: it outlives a SIGTERM, not its trainer."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import select
import signal
import subprocess
import sys
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from agent_env.client._dial import Address
from agent_env.client._policy import Policy
from agent_env.client._site import Site
from agent_env.training.rollout_worker import EpisodeLog, WorkerFactory
from agent_env.training.trl import Factory

REPOSITORY = Path(__file__).parents[3]
TRAINER = "from tests.agent_env.training.rollout_worker_test import train; train({episodes!r})"


def factory(*, reset_timeout: float = 1.0, budget: float | None = None) -> Factory:
    policy = Policy(
        patience=0.0, reset_timeout=reset_timeout, budget=budget, waits_for_server=False
    )
    return Factory("counter", (), ("train",), Site(Address("http://127.0.0.1:9")), policy)


def train(episodes: str) -> None:
    """A trainer's process: one worker, told on stdout; then it waits to be killed."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    made = WorkerFactory(factory(), episodes=Path(episodes))
    worker = spawning.Process(target=work, args=(made, theirs), daemon=True)
    worker.start()
    ours.recv()
    print(worker.pid, flush=True)
    signal.pause()


def work(made: WorkerFactory, told: Connection) -> None:
    """A worker's process: one environment that loses its rollout."""
    environment = made()
    environment._episode.begin()
    environment._episode.lose("gone for good")
    environment.get_reward()
    told.send("ready")
    while True:
        signal.pause()


def test_a_worker_ignores_a_groups_sigterm_tells_its_episodes_and_dies_with_its_trainer(
    tmp_path: Path,
) -> None:
    episodes = tmp_path / "episodes.jsonl"
    log = EpisodeLog(episodes)
    command = [sys.executable, "-c", TRAINER.format(episodes=str(episodes))]
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": os.defpath}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as trainer:
        assert trainer.stdout is not None
        pid = int(trainer.stdout.readline())
        with closing(os.fdopen(os.pidfd_open(pid))) as worker:
            try:
                os.kill(pid, signal.SIGTERM)
                episode = log.of(None)
                assert episode is not None
                assert episode.lost == "gone for good"
                assert not select.select([worker], [], [], 0.2)[0], "the worker took the SIGTERM"
                trainer.kill()
                assert select.select([worker], [], [], 20.0)[0], "it outlives its trainer"
            finally:
                trainer.kill()
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(worker.fileno(), signal.SIGKILL)


def test_in_the_trainers_own_process_nothing_is_settled() -> None:
    before = signal.getsignal(signal.SIGTERM)
    pickle.loads(pickle.dumps(WorkerFactory(factory())))()
    assert signal.getsignal(signal.SIGTERM) is before


def test_waits_that_would_pass_for_a_hung_worker_are_refused_with_the_fix() -> None:
    with pytest.raises(
        ValueError, match=r"reset_timeout: .* 800 s, .*hung after 300 s.*budget=150"
    ):
        WorkerFactory(factory(reset_timeout=400.0))
    WorkerFactory(factory(reset_timeout=400.0), stale_after_s=900.0)
    WorkerFactory(factory(reset_timeout=400.0, budget=150.0))


def test_an_episode_is_told_once_to_a_sample_with_its_reward(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"

    def write(**told: object) -> None:
        with path.open("a") as file:
            file.write(json.dumps(told) + "\n")

    write(reward=0.5, tool_calls=9)
    log = EpisodeLog(path)
    assert log.of(0.5) is None, "it is of an earlier run"
    write(reward=None, lost="gone")
    write(reward=0.5, tool_calls=2)
    with path.open("a") as file:
        file.write('{"reward": 0.5, "tool')
    found = log.of(0.5), log.of(0.5), log.of(None)
    assert [one and (one.tool_calls, one.lost) for one in found] == [(2, None), None, (0, "gone")]
    with path.open("a") as file:
        file.write('_calls": 3}\n')
    assert log.of(0.5) is not None
