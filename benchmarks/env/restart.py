"""How soon sessions live again after the server was killed and started on the same journal."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

from benchmarks.env import kinds
from benchmarks.env.load import ADD, Player, dial
from benchmarks.env.process import Server
from benchmarks.measure import Measure

SESSIONS = 64
STEPS = 50
"""What is replayed of each."""

REPEATS = 3


def measures(folder: Path) -> tuple[list[Measure], str]:
    """p95 seconds from healthy to the reply to the step after the last, median of the repeats."""
    tries = [asyncio.run(_killed(folder / f"restart-{number}")) for number in range(REPEATS)]
    said = f"{SESSIONS} sessions of {STEPS} steps live again, p95 in s: " + ", ".join(
        f"{seconds:.2f}" for seconds in tries
    )
    return [Measure("sessions live again (p95)", statistics.median(tries), "s", 1.0)], said


async def _killed(journal: Path) -> float:
    with kinds.ours(journal) as server:
        names = [f"session-{number:04}" for number in range(SESSIONS)]
        made = [await _named(server, name) for name in names]
        await asyncio.gather(*(player.steps(ADD, STEPS) for player in made))
        server.kill()
        with kinds.ours(journal, port=server.port) as again:
            times = await asyncio.gather(*(_revived(again, name) for name in names))
    return statistics.quantiles(times, n=20)[-1]


async def _named(server: Server, name: str) -> Player:
    """A session has the id of its first episode."""
    player = await dial(server)
    await player.reset(episode_id=name)
    return player


async def _revived(server: Server, name: str) -> float:
    """Seconds from healthy until the session has answered its next step."""
    player = await dial(server, f"?session_id={name}")
    player.seq = STEPS
    reply = await player.step(ADD)
    seconds = time.monotonic() - server.healthy_at
    session = reply["data"]["metadata"]["session"]
    if (session["id"], session["seq"], session["epoch"]) != (name, STEPS + 1, 1):
        raise RuntimeError(f"another session than {name} answered: {session}")
    await player.close()
    return seconds
