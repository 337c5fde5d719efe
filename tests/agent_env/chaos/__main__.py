"""`make chaos`: the full eval while the server is struck, against the same eval in peace.

    python -m tests.agent_env.chaos [--seed N] [--short] [--workers N] [--keep FOLDER]

Exit status 0 if every number is the same and the time within its bound, else 1.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import logging
import sys
import tempfile
from dataclasses import replace
from itertools import islice
from pathlib import Path

from tests.agent_env.chaos.harness import Outcome, Plan, Share, run
from tests.agent_env.chaos.monkey import Temper
from tests.agent_env.chaos.verdict import LEAST_CUTS, LEAST_STRIKES, Verdict, judge

HURRIED = Temper(pause_s=(0.5, 1.0), cut_pause_s=(0.05, 0.2), frozen_s=(0.1, 0.4))
"""For a short run: as bad, but sooner."""


def full(seed: int) -> Plan:
    """The gate: 200 days four times, 100 mailboxes, 64 sessions."""
    shares = (
        Share(bundle="gridsim", tasks=200, attempts=4, sessions=44),
        Share(bundle="inbox", tasks=100, attempts=1, sessions=20),
    )
    return Plan(shares=shares, think_s=1.0, seed=seed)


def short(seed: int) -> Plan:
    """The same in little, for `make test`."""
    shares = (
        Share(bundle="gridsim", tasks=10, attempts=2, sessions=8),
        Share(bundle="inbox", tasks=5, attempts=1, sessions=5),
    )
    return Plan(shares=shares, think_s=0.25, seed=seed)


def main() -> int:
    """Run twice, compare, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.agent_env.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="half a minute instead of minutes")
    parser.add_argument("--workers", type=int, default=0, help="of the server; default: none")
    parser.add_argument("--keep", type=Path, help="a folder for tables, journals and server logs")
    args = parser.parse_args()
    logging.disable(logging.WARNING)  # every wait is told, and that is what this is full of
    plan = short(args.seed) if args.short else full(args.seed)
    plan = replace(plan, workers=args.workers)
    with tempfile.TemporaryDirectory(prefix="chaos-") as made:
        home: Path = args.keep or Path(made)
        peace = run(plan, home / "peace", None)
        print(f"in peace: {len(peace.lines)} rollouts in {peace.wall_s:.1f} s", flush=True)
        chaos = run(plan, home / "chaos", HURRIED if args.short else Temper())
        for name, outcome in (("peace", peace), ("chaos", chaos)):
            (home / f"{name}.jsonl").write_bytes(outcome.table)
    return told(plan, peace, chaos, judge(peace, chaos), enough=not args.short)


def told(plan: Plan, peace: Outcome, chaos: Outcome, verdict: Verdict, *, enough: bool) -> int:
    """Print the figures; the exit status. `enough`: the gate's number of strikes, and its time."""
    strikes = ", ".join(f"{count} {kind}" for kind, count in sorted(chaos.strikes.items()))
    print(
        f"disturbed: {sum(chaos.strikes.values())} strikes ({strikes}), {chaos.cuts} sockets cut,"
        f" {chaos.continued} calls went on over another connection"
    )
    print(
        f"rollouts {verdict.rollouts}: {verdict.lost} lost, {verdict.duplicated} duplicated,"
        f" {verdict.fabricated} fabricated; {plan.sessions} sessions, seed {plan.seed}"
    )
    same = "byte-identical" if verdict.identical else "DIFFERENT"
    print(f"tables {same}: {_digest(peace)}, {_digest(chaos)}")
    print(
        f"wall {chaos.wall_s:.1f} s, allowed {verdict.allowed_s:.1f} s"
        f" (in peace {peace.wall_s:.1f} s, down {chaos.down_s:.1f} s)"
    )
    _differences(peace, chaos)
    hard = sum(chaos.strikes.values()) >= LEAST_STRIKES and chaos.cuts >= LEAST_CUTS
    if enough and not hard:
        print(f"too gentle: {LEAST_STRIKES} strikes and {LEAST_CUTS} cuts are asked for")
    whole = hard and chaos.wall_s <= verdict.allowed_s
    return 0 if verdict.kept and (whole or not enough) else 1


def _differences(peace: Outcome, chaos: Outcome) -> None:
    for why in islice(chaos.lost, 10):
        print(f"lost: {why}")
    before, after = (outcome.table.decode().splitlines() for outcome in (peace, chaos))
    for line in islice(difflib.unified_diff(before, after, "peace", "chaos", n=0), 20):
        print(line)


def _digest(outcome: Outcome) -> str:
    return hashlib.sha256(outcome.table).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
