"""What a training process settles before anything heavy is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent_env.training.preflight.source_test import model

ROOT = Path(__file__).parents[3]


def offline(source: str) -> str:
    """HF_HUB_OFFLINE of a process that is settled for a model."""
    code = (
        "import os, sys; from agent_env.training.process import settle_process;"
        "settle_process(source=sys.argv[1], unsloth=False);"
        "print(os.environ.get('HF_HUB_OFFLINE'))"
    )
    command = [sys.executable, "-c", code, source]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize(("adapter", "told"), [(False, "1"), (True, "None")])
def test_the_hub_is_switched_off_for_a_model_that_is_all_here(
    tmp_path: Path, adapter: bool, told: str
) -> None:
    folder = model(tmp_path / "model")
    if adapter:  # its base model may have to be fetched
        (folder / "config.json").rename(folder / "adapter_config.json")
    assert offline(str(folder)) == told
