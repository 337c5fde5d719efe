"""What this machine keeps of a run that it began, should the bucket be what is broken.

Only a cache: `gpurun rescue` looks here when neither the record nor the keys can be read from the
bucket. Readable by nobody else, and gone once the run is.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

from pydantic import ValidationError

from orchestrator.run import RunRecord, SshSecrets, check_run_id

if TYPE_CHECKING:
    from pathlib import Path


def keep(home: Path, record: RunRecord, secrets: SshSecrets) -> None:
    """Write both; a folder that can't be written costs nothing but the way round."""
    folder = _folder(home, record.run_id)
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(folder / "run.json", record.model_dump_json())
        _write(folder / "ssh.json", secrets.model_dump_json())


def recall(home: Path, run_id: str) -> tuple[RunRecord, SshSecrets] | None:
    """None when this machine didn't begin the run, or has forgotten it. Raises RunNotFound."""
    folder = _folder(home, run_id)
    try:
        record = RunRecord.model_validate_json((folder / "run.json").read_text())
        return record, SshSecrets.model_validate_json((folder / "ssh.json").read_text())
    except (OSError, ValidationError):
        return None


def forget(home: Path, run_id: str) -> None:
    """The run is over: its boxes are gone, and so is the use of its keys."""
    shutil.rmtree(_folder(home, run_id), ignore_errors=True)


def _folder(home: Path, run_id: str) -> Path:
    return home / "runs" / check_run_id(run_id)


def _write(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    part.replace(path)
