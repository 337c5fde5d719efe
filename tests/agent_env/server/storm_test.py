"""Kills of every kind while many play: each step is carried out once, whoever dies."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from ..conftest import eventually
from .conftest import Player, Process, Start, text
from .workers_test import workers_of

Reply = dict[str, Any]

PLAYERS = 12
STEPS = 60


class Patient:
    """Plays an episode to its end, whatever happens to its socket; keeps what it was told."""

    def __init__(self, server: Process, number: int) -> None:
        self.server = server
        self.name = f"session-{number:02}"
        self.rng = random.Random(number)
        self.player: Player | None = None
        self.answers = 0
        self.seen = 0

    def went_on(self) -> bool:
        """Whether it was answered since the last kill, or is done."""
        return self.answers > self.seen or self.answers > STEPS

    def play(self) -> list[str]:
        self._until_answered(lambda player: player.begin(index=3))
        told = []
        for seq in range(1, STEPS + 1):
            if self.rng.random() < 0.1 and self.player is not None:
                self.player.cut()
            told.append(text(self._until_answered(partial(_step, seq))))
        return told

    def _until_answered(self, ask: Callable[[Player], Reply]) -> Reply:
        for _ in range(400):
            try:
                if self.player is None:
                    self.player = Player(self.server, self.name)
                reply = ask(self.player)
                self.answers += 1
                return reply
            except (ConnectionClosed, InvalidHandshake, OSError, EOFError, TimeoutError):
                self.player = None
                threading.Event().wait(0.05)
        raise AssertionError(f"{self.name} was never answered")


def _step(seq: int, player: Player) -> Reply:
    if seq % 5:
        return player.step(seq, "add", n=seq)
    return player.step(seq, "wait", seconds=0.02)


def expected() -> list[str]:
    total, told = 0, []
    for seq in range(1, STEPS + 1):
        total += seq if seq % 5 else 0
        told.append(str(total) if seq % 5 else "waited")
    return told


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("workers", [0, 2])
def test_no_step_is_lost_doubled_or_made_up(start: Start, tmp_path: Path, workers: int) -> None:
    options = [f"--journal={tmp_path}", f"--max-sessions={PLAYERS}"]
    options += [f"--workers={workers}"] if workers else []
    server, rng = start(*options), random.Random(workers)
    patients = [Patient(server, number) for number in range(PLAYERS)]
    with ThreadPoolExecutor(PLAYERS) as pool:
        playing = [pool.submit(patient.play) for patient in patients]
        kills = 0
        while not all(future.done() for future in playing):
            threading.Event().wait(0.2)
            if not all(patient.went_on() for patient in patients):
                continue
            kills += 1
            for patient in patients:
                patient.seen = patient.answers
            with suppress(ProcessLookupError, IndexError, FileNotFoundError):
                if workers and rng.random() < 0.7:
                    os.kill(rng.choice(workers_of(server)), signal.SIGKILL)
                    continue
            if rng.random() < 0.3:
                server.signal(signal.SIGTERM)
                server.wait()
            server.kill()
            server = start(*options, port=server.port)
            for patient in patients:
                patient.server = server
        for future in playing:
            assert future.result() == expected()
    assert kills >= 3
    eventually(lambda: server.capacity()["active_sessions"] <= PLAYERS)
