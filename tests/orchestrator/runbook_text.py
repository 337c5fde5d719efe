"""A small right runbook as text, for tests that spoil one thing in it."""

from __future__ import annotations

from pathlib import Path

RUNBOOK = """\
name: demo
cap_usd: 10
regions: [us-east-1]
pins: cpu
boxes:
  l40s:
    instance: g6e.4xlarge
    hours: 1
  l4:
    instance: g6.4xlarge
    hours: 1
jobs:
  sft:
    box: l40s
    program: sft
    config: {seed: 0}
    hours: 5m
  grpo:
    box: l40s
    program: grpo
    needs: [sft]
    inputs: {model: {job: sft, path: out/model}}
    retries: 2
  own:
    box: l4
    command: python3 train.py
    workdir: own
    results: [out]
"""


def write_runbook(folder: Path, text: str = RUNBOOK) -> Path:
    """The text as demo.yaml in the folder, beside the workdir that it names."""
    (folder / "own").mkdir(exist_ok=True)
    (folder / "own" / "train.py").write_text("print('trained')\n")
    path = folder / "demo.yaml"
    path.write_text(text)
    return path


def spoil(old: str, new: str) -> str:
    """The runbook's text with one thing changed; the old text must be there once."""
    assert RUNBOOK.count(old) == 1, old
    return RUNBOOK.replace(old, new)
