"""How long `gpurun --help` and `gpurun plan` take, from nothing to the prompt.

The bare interpreter is the yardstick: on a busy machine all three grow together.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measure import Measure

ROOT = Path(__file__).resolve().parent.parent
GPURUN = Path(sys.executable).parent / "gpurun"
RUNBOOK = ROOT / "runbooks" / "rehearsal.yaml"
REPEATS = 7


def measures(repeats: int = REPEATS) -> list[Measure]:
    """Median wall times in seconds; the first, cold start is thrown away."""
    return [
        Measure("python -c pass", wall_s([sys.executable, "-c", "pass"], repeats), "s", 0.5),
        Measure("gpurun --help", wall_s([str(GPURUN), "--help"], repeats), "s", 0.5),
        Measure("gpurun plan", wall_s([str(GPURUN), "plan", str(RUNBOOK)], repeats), "s", 1.5),
    ]


def wall_s(command: list[str], repeats: int) -> float:
    """Median seconds of `repeats` runs after one to warm the disk cache.

    Raises:
        CalledProcessError: the command failed; a time of a failure means nothing.
    """
    _timed(command)
    return statistics.median(_timed(command) for _ in range(repeats))


def _timed(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started
