"""A lost rollout on its way through verl's own queue and sampler, on a Ray of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent_env.training.ray_child import private_ray

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[3]


def test_verl_trains_on_the_siblings_of_a_lost_rollout_and_on_no_row_in_its_place(
    tmp_path: Path,
) -> None:
    with private_ray() as environment:
        done = subprocess.run(
            [sys.executable, "-m", "tests.agent_env.training.verl_queue", str(tmp_path)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["keys"] == ["clean_0_0", "clean_1_0", "half_0_0"]
    assert told["rewards"] == [0.5] * 3
    assert "no materializable trajectories" in told["end"]
    assert told["listens"], "nothing of Ray's was found listening"
    assert told["abroad"] == [], "Ray listens to other machines"
