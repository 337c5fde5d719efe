"""`python -m benchmarks env`, or `python -m benchmarks.env`: the table, and how it came about."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.env import boot, memory, restart, scoring, steps
from benchmarks.measure import table


def main() -> int:
    """Measure, print; the status is 1 if a limit was missed, 2 if OpenEnv isn't installed."""
    with tempfile.TemporaryDirectory(prefix="bench-env-") as home:
        folder = Path(home)
        try:
            parts = [
                steps.measures(folder / "steps"),
                boot.measures(folder / "boot"),
                memory.measures(folder / "memory"),
                restart.measures(folder),
                scoring.measures(),
            ]
        except FileNotFoundError as error:
            print(error, file=sys.stderr)
            return 2
    measured = [measure for measures, _ in parts for measure in measures]
    print(table(measured))
    print("\n".join(said for _, said in parts), flush=True)
    return 0 if all(measure.good for measure in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
