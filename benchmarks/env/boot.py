"""From the start of the process to the first healthy answer, ours and stock in turn.

Less the time for which the process waited for a core, and medians: what else a machine does is no
property of a server.
"""

from __future__ import annotations

import statistics
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
    middle = statistics.median(ours)
    return [
        Measure("boot to healthy", middle, "s", 1.0),
        Measure("boot to healthy / stock", middle / statistics.median(stock), "x", 1 / 3),
    ], f"boot in s, {REPEATS} times: {times[0]}, stock {times[1]}"


def _boot_s(folder: Path) -> float:
    with kinds.ours(folder, bundle="gridsim") as server:
        return server.boot_s - server.waited_s


def _stock_s() -> float:
    with kinds.stock() as server:
        return server.boot_s - server.waited_s
