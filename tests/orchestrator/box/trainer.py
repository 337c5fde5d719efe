"""What a job looks like from outside: steps, metrics, TRL-like checkpoints, resume, SIGTERM.

The sum of the steps is its result, so a step that was lost or done twice shows.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

STEPS, PAUSE = int(os.environ.get("STEPS", "20")), float(os.environ.get("PAUSE", "0.05"))
OUT = Path(os.environ["GPURUN_OUT"])
stopping: list[bool] = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))


def complete() -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    for folder in OUT.glob("checkpoint-*"):
        try:
            found[int(folder.name[11:])] = json.loads((folder / "trainer_state.json").read_text())
        except (OSError, ValueError):
            continue
    return found


def save(step: int, total: int) -> None:
    folder = OUT / f"checkpoint-{step}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(b"%d" % total * 1000)
    (folder / "trainer_state.json").write_text(json.dumps({"step": step, "total": total}))


def say(**line: Any) -> None:
    with Path(os.environ["GPURUN_METRICS"]).open("a") as file:
        file.write(
            json.dumps({"t": time.time(), "pid": os.getpid(), "max_steps": STEPS, **line}) + "\n"
        )


saved = complete()
step, total = (max(saved), saved[max(saved)]["total"]) if saved else (0, 0)
print("from step", step, flush=True)
while step < STEPS:
    step += 1
    total += step
    say(kind="train", step=step, reward=step / STEPS)
    if step % 5 == 0 or stopping:
        save(step, total)
    if stopping:
        sys.exit(0)
    time.sleep(PAUSE)
(OUT / "total.txt").write_text(str(total))
say(kind="final", step=step, total=total)
