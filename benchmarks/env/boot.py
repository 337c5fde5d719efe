"""From the start of the process to the first healthy answer, ours and stock in turn.

Less the time for which the process waited for a core, and medians: what else a machine does is no
property of a server.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

from benchmarks.env import kinds
from benchmarks.env.process import Server
from benchmarks.measure import Measure

REPEATS = 7


def measures(folder: Path) -> tuple[list[Measure], str]:
    """Seconds for gridsim; and the ratio to OpenEnv's server, each with the same one tool."""
    boots: dict[str, Callable[[], Server]] = {
        "gridsim": lambda: kinds.ours(folder, bundle="gridsim"),
        "one tool": lambda: kinds.ours(folder),
        "stock": kinds.stock,
    }
    for boot in boots.values():
        _boot_s(boot)  # the disk cache is cold
    times: dict[str, list[float]] = {name: [] for name in boots}
    for _ in range(REPEATS):
        for name, boot in boots.items():
            times[name].append(_boot_s(boot))
    gridsim, ours, stock = (statistics.median(each) for each in times.values())
    ranges = (f"{name} {min(each):.2f} to {max(each):.2f}" for name, each in times.items())
    return [
        Measure("boot to healthy", gridsim, "s", 1.0),
        Measure("boot to healthy / stock", ours / stock, "x", 1 / 3),
    ], f"boot in s, {REPEATS} times: {', '.join(ranges)}"


def _boot_s(start: Callable[[], Server]) -> float:
    with start() as server:
        return server.boot_s - server.waited_s
