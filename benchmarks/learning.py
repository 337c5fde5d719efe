"""Does the rehearsal's model learn? Warm start and GRPO on gridsim's coarse days, seed by seed.

    .venv-train/bin/python benchmarks/learning.py            three seeds, about five minutes
    .venv-train/bin/python benchmarks/learning.py --control  learning rate 0: must not pass

Exit status 0 if the mean eval reward of every seed rises by at least 0.15, else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
RISE = 0.15
ROW = "{:>5} {:>8} {:>8} {:>8} {:>9} {:>9} {:>7}  {}"


def main() -> int:
    """Run every seed, print the table, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--control", action="store_true", help="GRPO with learning rate 0")
    args = parser.parse_args()
    print(ROW.format("seed", "before", "after", "rise", "unscored", "sft_s", "grpo_s", ""))
    rises = []
    for seed in args.seeds:
        with tempfile.TemporaryDirectory() as folder:
            rises.append(_learn(Path(folder), seed, control=args.control))
    return 0 if all(rise >= RISE for rise in rises) else 1


def _learn(folder: Path, seed: int, *, control: bool) -> float:
    _, sft_s = _run(folder, "sft", {"seed": seed}, {})
    rate = {"learning_rate": 0.0} if control else {}
    model = {"model": str(folder / "sft" / "out" / "model")}
    final, grpo_s = _run(folder, "grpo", {"seed": seed} | rate, model)
    before, after, rise = (
        final[key] for key in ("eval_reward_before", "eval_reward_after", "rise")
    )
    numbers = [f"{value:.3f}" for value in (before, after, rise)]
    verdict = "learned" if rise >= RISE else f"rose by less than {RISE}"
    times = [f"{sft_s:.0f}", f"{grpo_s:.0f}"]
    print(ROW.format(seed, *numbers, final["unscored"], *times, verdict), flush=True)
    return float(rise)


def _run(
    folder: Path, program: str, config: dict[str, Any], inputs: dict[str, str]
) -> tuple[dict[str, Any], float]:
    """The program's final line, and how long it took in seconds."""
    home = folder / program
    home.mkdir()
    metrics = home / "metrics.jsonl"
    job = {"config": config, "out": str(home / "out"), "metrics": str(metrics), "inputs": inputs}
    (home / "job.json").write_text(json.dumps(job))
    command = [sys.executable, "-m", f"agent_env.training.{program}", str(home / "job.json")]
    began = time.monotonic()
    with (home / "log.txt").open("w") as log:
        done = subprocess.run(
            command,
            cwd=home,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        sys.exit(f"{program} ended with {done.returncode}:\n{(home / 'log.txt').read_text()}")
    final: dict[str, Any] = json.loads(metrics.read_text().splitlines()[-1])
    return final, time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
