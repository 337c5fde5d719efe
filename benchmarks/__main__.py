"""`make bench`: how fast the command answers, then how much the model learns in .venv-train."""

from __future__ import annotations

import subprocess
import sys

from benchmarks import startup
from benchmarks.measure import table


def main() -> int:
    """Print every table; the status is 1 if a limit was missed."""
    measures = startup.measures()
    print(table(measures), flush=True)
    learned = _learning()
    return 0 if learned == 0 and all(measure.good for measure in measures) else 1


def _learning() -> int:
    """Three seeds of the coarse split; the module prints its own table."""
    python = startup.ROOT / ".venv-train" / "bin" / "python"
    if not python.exists():
        print("learning: not measured, .venv-train is missing (make train-setup)")
        return 1
    command = [str(python), "-m", "benchmarks.learning"]
    return subprocess.run(command, cwd=startup.ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
