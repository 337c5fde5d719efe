"""`make scoreboard`: the same bad luck for five policies, as a table.

Per cell: what was spent by the next morning, whether anything bills ten minutes after the
deadline, and how many minutes of saved work can't be had back.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from tests.faults.scoreboard import board
from tests.faults.scoreboard.lives import OURS


def main() -> int:
    """0 when ours kept every promise."""
    parser = argparse.ArgumentParser(prog="make scoreboard", description=__doc__)
    parser.add_argument("--json", action="store_true", help="every cell, for a machine")
    parser.add_argument("--write", action="store_true", help="renew docs/scoreboard.md")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    began = time.monotonic()
    played = board.play(options.workers)
    if options.write:
        page = board.PAGE.read_text(encoding="utf-8")
        board.PAGE.write_text(board.renewed(page, played), encoding="utf-8")
    if options.json:
        print(json.dumps(board.as_json(played), indent=2))
    else:
        cap = next(iter(played.values())).cap_usd
        print(board.table(played))
        print(f"per cell: money (cap ${cap}), leak, results; {time.monotonic() - began:.0f} s")
    ours = [cell for (_, title), cell in played.items() if title == OURS]
    return 0 if all(cell.money and cell.leak and cell.results for cell in ours) else 1


if __name__ == "__main__":
    sys.exit(main())
