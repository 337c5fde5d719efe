"""`make faults`: all single faults, then thousands of sampled pairs and triples, seeded."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.faults import search
from tests.faults.fault import Fault
from tests.faults.world import Enforcers

TELL_S = 20.0


def main() -> int:
    """0 when every promise held; each failure is printed with the command that replays it."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--singles", type=int, help="single faults to draw; all of them without")
    parser.add_argument("--samples", type=int, default=5000, help="pairs and triples to draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--replay", help="a printed schedule, to live through once more")
    parser.add_argument("--without", choices=("controller", "box", "cloud"), action="append")
    options = parser.parse_args()
    if options.replay:
        return _replay(options.replay)
    enforcers = Enforcers(**dict.fromkeys(options.without or (), False))
    ones = [(fault,) for fault in search.some_singles(options.singles, options.seed)]
    bad = _all("single faults", ones, options.workers, enforcers)
    drawn = list(search.samples(options.samples, options.seed))
    bad += _all(f"pairs and triples, seed {options.seed}", drawn, options.workers, enforcers)
    return 1 if bad else 0


def _all(
    name: str, schedules: Sequence[tuple[Fault, ...]], workers: int, enforcers: Enforcers
) -> int:
    if not schedules:
        return 0
    began, bad = time.monotonic(), 0
    print(f"{name}: {len(schedules)} lives", flush=True)
    kinds = Counter(fault.kind for schedule in schedules for fault in schedule)
    told = began
    for done, (faults, broken) in enumerate(search.search(schedules, workers, enforcers), 1):
        if time.monotonic() - told > TELL_S:
            told = time.monotonic()
            left = (told - began) / done * (len(schedules) - done) / 60
            print(f"  {name}: {done} of {len(schedules)}, about {left:.0f} min left", flush=True)
        if broken:
            bad += 1
            print(search.minimal(faults, enforcers), flush=True)
    took = time.monotonic() - began
    print(f"{name}: {len(schedules)} lives in {took:.0f} s, {bad} with a broken promise")
    print("  " + ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())), flush=True)
    return bad


def _replay(schedule: str) -> int:
    broken, life = search.replay(schedule)
    for error in life.errors:
        print(f"a person saw: {error}")
    for instance, (at, why) in life.world.deaths.items():
        print(f"{instance} died at t+{at - search.START_S:.0f}: {why}")
    for breach in broken:
        print(f"BROKEN {breach}")
    print("every promise held" if not broken else f"{len(broken)} breaches")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
