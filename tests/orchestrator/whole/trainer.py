"""Stands in for someone else's training script: knows nothing of gpurun but its own arguments.

Each step adds to a sum; a checkpoint is the sum so far; SIGTERM saves and leaves. What it ends
with depends on the steps alone, so an interrupted run must end like an undisturbed one.
"""

import argparse
import json
import signal
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--step-s", type=float, default=0.05)
parser.add_argument("--linger-s", type=float, default=0.0)
args = parser.parse_args()

out = Path("out")
out.mkdir(exist_ok=True)
state = out / "state.json"
step, total = json.loads(state.read_text()) if state.exists() else (0, 0)
stopping = False


def stop(*_: object) -> None:
    global stopping
    stopping = True


def save() -> None:
    part = state.with_suffix(".part")
    part.write_text(json.dumps([step, total]))
    part.rename(state)


signal.signal(signal.SIGTERM, stop)
while step < args.steps and not stopping:
    time.sleep(args.step_s)
    step, total = step + 1, total + step
    print(f"step {step} total {total}", flush=True)
    if step % 5 == 0:
        save()
save()
if stopping:
    time.sleep(args.linger_s)
    sys.exit(143)
(out / "weights.txt").write_text(f"{total}\n")
