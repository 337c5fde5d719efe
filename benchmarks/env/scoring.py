"""How long it takes to simulate and score one gridsim day."""

from __future__ import annotations

import statistics
import time

from agent_env.bundles.gridsim import bundle
from agent_env.bundles.gridsim.frozen import fine_days
from benchmarks.measure import Measure

DAYS = 200


def measures() -> tuple[list[Measure], str]:
    """Median milliseconds over the days of `eval`, each with its best schedule."""
    times = [_scored_s(index) for index in range(DAYS)]
    middle = statistics.median(times)
    said = f"{1 / middle:.0f} gridsim days scored a second"
    return [Measure("scoring one gridsim day", middle * 1e3, "ms", 2.0)], said


def _scored_s(index: int) -> float:
    task, best = bundle.open(bundle.tasks("eval")[index]), fine_days("eval")[index].best()
    task.reset(None)
    arguments = {"battery_kw": list(best.battery_kw), "generator_kw": list(best.generator_kw)}
    began = time.perf_counter()
    task.call_tool("commit_schedule", arguments)
    scores = task.score()
    spent = time.perf_counter() - began
    if scores["value"] < 0.99:
        raise RuntimeError(f"the best schedule of day {index} is worth {scores['value']}")
    return spent
