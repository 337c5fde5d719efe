"""From the start of the process to the first healthy answer, ours and stock in turn.

The fastest boot of each counts: what a busy machine adds to a wall clock is no property of a
server.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.env import kinds
from benchmarks.measure import Measure

REPEATS = 7


def measures(folder: Path) -> tuple[list[Measure], str]:
    """Seconds for gridsim, and the ratio to OpenEnv's server with one tool."""
    _boot_s(folder), _stock_s()  # the disk cache is cold
    ours, stock = [], []
    for _ in range(REPEATS):
        ours.append(_boot_s(folder))
        stock.append(_stock_s())
    times = [f"{min(each):.2f} to {max(each):.2f}" for each in (ours, stock)]
    return [
        Measure("boot to healthy (fastest)", min(ours), "s", 1.0),
        Measure("boot to healthy / stock (fastest)", min(ours) / min(stock), "x", 1 / 3),
    ], f"boot in s, {REPEATS} times: {times[0]}, stock {times[1]}"


def _boot_s(folder: Path) -> float:
    with kinds.ours(folder, bundle="gridsim") as server:
        return server.boot_s


def _stock_s() -> float:
    with kinds.stock() as server:
        return server.boot_s
