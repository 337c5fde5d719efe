"""Stands in for someone's training script: it knows nothing of gpurun but three folders' names.

Writes a checkpoint each step, resumes from the newest, and stops cleanly on SIGTERM.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

OUT = Path(os.environ.get("GPURUN_OUT", "out"))
METRICS = Path(os.environ.get("GPURUN_METRICS", "metrics.jsonl"))
CHECKPOINT = OUT / "checkpoint.json"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--to", type=int, default=20)
    options.add_argument("--pause", type=float, default=0.2)
    to, pause = vars(options.parse_args()).values()

    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    OUT.mkdir(parents=True, exist_ok=True)
    for step in range(resume_from() + 1, to + 1):
        time.sleep(pause)
        save(step)
        report(step, to, "train")
        if stopping:
            print(f"stopped at {step}", flush=True)
            return 143
    report(to, to, "final", counted=resume_from())
    return 0


def resume_from() -> int:
    return json.loads(CHECKPOINT.read_text())["step"] if CHECKPOINT.exists() else 0


def save(step: int) -> None:
    """Whole or not at all: a reader never sees half a checkpoint."""
    half = CHECKPOINT.with_suffix(".part")
    half.write_text(json.dumps({"step": step}))
    half.replace(CHECKPOINT)


def report(step: int, to: int, kind: str, **numbers: float) -> None:
    line = {"t": time.time(), "step": step, "max_steps": to, "kind": kind, "reward": None}
    with METRICS.open("a") as metrics:
        metrics.write(json.dumps({**line, **numbers}) + "\n")
    print(f"{kind} {step} of {to}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
