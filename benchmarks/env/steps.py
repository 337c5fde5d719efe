"""What a step costs the server, in rounds that go from one server to the next.

A busy machine makes all of them dearer together, so each round is a ratio, and the median counts.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.env import kinds
from benchmarks.env.load import ADD, TICK, Action, Player, cpu_us_per_step, players
from benchmarks.env.process import Server
from benchmarks.measure import Measure

SESSIONS, STOCK_SESSIONS = 64, 16
STEPS, STOCK_STEPS = 50, 10
ROUNDS = 9


@dataclass
class Case:
    """One server and one kind of step; `us` are its rounds."""

    server: Server
    players: Sequence[Player]
    action: Action
    steps: int
    us: list[float]

    async def round(self) -> None:
        """Measure once more."""
        self.us.append(await cpu_us_per_step(self.server, self.players, self.action, self.steps))


def measures(folder: Path) -> tuple[list[Measure], str]:
    """The two ratios to the floor and the one to stock, and a line with the microseconds."""
    with ExitStack() as stack:
        servers = [stack.enter_context(server) for server in _servers(folder)]
        plain, plain_floor, tool, tool_floor, stock = asyncio.run(_rounds(*servers))
    said = (
        f"CPU of a step in µs, median of {ROUNDS}: plain {_us(plain)}, its floor"
        f" {_us(plain_floor)}, typed tool {_us(tool)}, its floor {_us(tool_floor)}, stock"
        f" {_us(stock)}"
    )
    return [
        Measure("CPU of a plain step / floor", _ratio(plain, plain_floor), "x", 1.4),
        Measure("CPU of a typed-tool step / floor", _ratio(tool, tool_floor), "x", 2.5),
        Measure("CPU of a typed-tool step / stock", _ratio(tool, stock), "x", 0.2),
    ], said


def _servers(folder: Path) -> list[Server]:
    return [kinds.ours(folder, max_sessions=2 * SESSIONS), kinds.floor(), kinds.stock()]


async def _rounds(ours: Server, floor: Server, stock: Server) -> list[Case]:
    cases = []
    for action in (TICK, ADD):
        made = await players(ours, SESSIONS)
        reply = await made[0].step(action)
        cases.append(Case(ours, made, action, STEPS, []))
        echoes = await players(floor, SESSIONS, reply=reply)
        cases.append(Case(floor, echoes, action, STEPS, []))
    peers = await players(stock, STOCK_SESSIONS)
    cases.append(Case(stock, peers, ADD, STOCK_STEPS, []))
    for case in cases:
        await case.round()  # the first is cold
        case.us.clear()
    for _ in range(ROUNDS):
        for case in cases:
            await case.round()
    for case in cases:
        await asyncio.gather(*(player.close() for player in case.players))
    return cases


def _ratio(case: Case, other: Case) -> float:
    return statistics.median(a / b for a, b in zip(case.us, other.us, strict=True))


def _us(case: Case) -> str:
    return f"{statistics.median(case.us):.0f}"
