"""`make bench`: how fast the command answers, what the env server costs, how much a model learns.

`python -m benchmarks startup|env|learning` measures one of them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable

from benchmarks import startup
from benchmarks.env import __main__ as env
from benchmarks.measure import table as as_table


def main() -> int:
    """Print the tables asked for, every one by default; the status is 1 if a limit was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("what", nargs="?", choices=_TABLES, help="one of them; default: all")
    what: str | None = parser.parse_args().what
    return max([table() for name, table in _TABLES.items() if what in (None, name)])


def _startup() -> int:
    measures = startup.measures()
    print(as_table(measures), flush=True)
    return 0 if all(measure.good for measure in measures) else 1


def _learning() -> int:
    """Three seeds of the coarse split; the module prints its own table."""
    python = startup.ROOT / ".venv-train" / "bin" / "python"
    if not python.exists():
        print("learning: not measured, .venv-train is missing (make train-setup)")
        return 1
    command = [str(python), "-m", "benchmarks.learning"]
    return subprocess.run(command, cwd=startup.ROOT, check=False).returncode


_TABLES: dict[str, Callable[[], int]] = {
    "startup": _startup,
    "env": env.main,
    "learning": _learning,
}

if __name__ == "__main__":
    sys.exit(main())
