"""Which of verl's checkpoints a run goes on from.

verl trusts one small file, which a crash may have left empty or ahead of the disk. Here it is made
to name the newest checkpoint whose last part, the data loader's state, is whole.
"""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path

from agent_env.training import trained_on

TRACKER = "latest_checkpointed_iteration.txt"

_NAME = re.compile(r"global_step_(\d+)")


def settle(out: Path) -> int:
    """The step that verl will go on from, 0 for the beginning; its tracker says so, too."""
    newest = max((step for step in map(_whole_step, out.glob("global_step_*")) if step), default=0)
    if newest:
        beside = out / f"{TRACKER}.partial"
        beside.write_text(str(newest), "utf-8")
        beside.replace(out / TRACKER)
    else:
        (out / TRACKER).unlink(missing_ok=True)
    return newest


def export(out: Path, step: int) -> Path | None:
    """Copy the step's weights to `out/model`, whole or not at all; None where verl wrote none."""
    weights = out / f"global_step_{step}" / "actor" / "huggingface"
    if not any(weights.glob("*.safetensors")):
        return None
    beside, model = out / "model.partial", out / "model"
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(weights, beside)
    trained_on.carry(out, beside)
    shutil.rmtree(model, ignore_errors=True)
    return beside.rename(model)


def _whole_step(folder: Path) -> int | None:
    named = _NAME.fullmatch(folder.name)
    # torch writes a zip archive, whose directory comes last: a cut one is none.
    if named is None or not zipfile.is_zipfile(folder / "data.pt"):
        return None
    return int(named[1])
