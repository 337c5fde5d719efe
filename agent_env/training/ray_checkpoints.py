"""Which of its checkpoints a trainer on Ray goes on from.

verl and SkyRL trust one small file, which a crash may have left empty or behind the disk. Here it
is made to name the newest whole checkpoint, and those that a crash cut short are removed: both
would count them among those to keep, and SkyRL refuses a folder with one far ahead.
"""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path

_NAME = re.compile(r"global_step_(\d+)")


def settle(folder: Path, tracker: str, last_parts: Sequence[str]) -> int:
    """The step that is gone on from, 0 for the beginning; the file `tracker` there says so, too.

    A checkpoint is whole when its `last_parts`, written after the weights, are whole.
    """
    steps = {int(named[1]): path for path, named in _named(folder)}
    newest = max((step for step, path in steps.items() if _whole(path, last_parts)), default=0)
    for step, path in steps.items():
        if step > newest:
            shutil.rmtree(path)
    if newest:
        beside = folder / f"{tracker}.partial"
        beside.write_text(str(newest), "utf-8")
        beside.replace(folder / tracker)
    else:
        (folder / tracker).unlink(missing_ok=True)
    return newest


def _named(folder: Path) -> list[tuple[Path, re.Match[str]]]:
    return [
        (path, named)
        for path in folder.glob("global_step_*")
        if (named := _NAME.fullmatch(path.name)) and path.is_dir()
    ]


def _whole(checkpoint: Path, last_parts: Sequence[str]) -> bool:
    # torch writes a zip archive, whose directory comes last: a cut one is none.
    return all(zipfile.is_zipfile(checkpoint / part) for part in last_parts)
