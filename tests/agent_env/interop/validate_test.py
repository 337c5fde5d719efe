"""`openenv validate`, run as its users run it, against our server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent_env.client.local import LocalServer

pytestmark = pytest.mark.openenv

OPENENV = Path(sys.executable).with_name("openenv")


def test_openenvs_validator_passes_our_server(server: LocalServer) -> None:
    command = [str(OPENENV), "validate", "--url", server.url, "--json", "--timeout", "20"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["passed"] is True
    assert report["summary"]["failed_criteria"] == []
