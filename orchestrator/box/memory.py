"""What the agent writes down about a job, so that a second agent on the box goes on from it."""

from __future__ import annotations

import json
from pathlib import Path

from orchestrator.box.state import Job

NAME = "agent.json"
KEYS = (
    *("state", "reason", "outcome", "attempt", "failures", "exit_code", "prepared"),
    *("started_at", "ended_at", "told", "keep_all", "manifest_seq", "synced_at", "withheld"),
)


def remember(job: Job, folder: Path) -> None:
    """Write it whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / (NAME + ".part")
    part.write_text(json.dumps({key: getattr(job, key) for key in KEYS}))
    part.replace(folder / NAME)


def recall(job: Job, folder: Path) -> bool:
    """Fill in what was written down; whether there was anything."""
    try:
        said = json.loads((folder / NAME).read_text())
        kept = [(key, said[key]) for key in KEYS]
    except (OSError, ValueError, LookupError, TypeError):
        return False
    for key, value in kept:
        setattr(job, key, value)
    return True
