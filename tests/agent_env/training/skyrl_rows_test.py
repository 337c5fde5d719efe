"""What of the SkyRL adapter needs no SkyRL: baselines, the child process, a missing package."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env.errors import NotInstalled
from agent_env.training import skyrl
from agent_env.training.config import ConfigError, parse_config
from agent_env.training.config.skyrl import SkyrlGrpoConfig
from agent_env.training.skyrl._rows import imputed, masked
from agent_env.training.skyrl.settings import EnvSettings
from tests.agent_env.conftest import eventually

REWARDS = st.floats(-1, 1).map(lambda reward: [0.0, reward])
ROW = st.tuples(st.sampled_from("ab"), REWARDS, st.booleans())


@given(st.lists(ROW, min_size=1, max_size=12))
def test_a_groups_mean_is_that_of_its_scored_rollouts(
    rows: list[tuple[str, list[float], bool]],
) -> None:
    groups, rewards, unscored = (list(column) for column in zip(*rows, strict=True))
    found = [sum(reward) for reward in imputed(rewards, groups, unscored)]
    for name in set(groups):
        group = [row for row, one in enumerate(groups) if one == name]
        scored = [sum(rewards[row]) for row in group if not unscored[row]]
        mean = statistics.fmean(scored) if scored else 0.0
        assert statistics.fmean([found[row] for row in group]) == pytest.approx(mean)
        assert all(found[row] == pytest.approx(mean) for row in group if unscored[row])


def test_a_masked_row_has_no_log_probability_that_could_poison_a_sum() -> None:
    output = {
        "response_ids": [[5, 6], [7]],
        "loss_masks": [[1, 1], [1]],
        "rollout_logprobs": [[float("nan"), -1.0], [-2.0]],
    }
    masked(output, [True, False])
    assert output["loss_masks"] == [[0, 0], [1]]
    assert output["rollout_logprobs"] == [[0.0, 0.0], [-2.0]]


def test_without_skyrl_the_fix_is_in_the_message() -> None:
    with pytest.raises(NotInstalled, match=r"pip install -r templates/pins/skyrl\.txt"):
        _ = skyrl.AgentEnvGenerator


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (EnvSettings(), "agent_env.url: name the env server"),
        (EnvSettings(url="http://127.0.0.1:1", deadline_s=0), "deadline_s: more than 0, not 0"),
        (EnvSettings(url="http://127.0.0.1:1", patience_s=-1), "patience is -1"),
    ],
)
def test_settings_that_cant_be_are_named(settings: EnvSettings, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        settings.check()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"unsloth": True}, "config.unsloth: this is another trainer"),
        ({"lora": {"four_bit": True}}, "config.lora: SkyRL takes rank and alpha only"),
        ({"report_to": ["trackio"]}, "config.report_to: SkyRL reports to wandb"),
        ({"gpus": 3}, "config.gpus: 3 doesn't divide train_batch, 8"),
        ({"loss_type": "grpo"}, "config.loss_type: SkyRL has its own"),
    ],
)
def test_what_skyrl_cant_do_is_refused_while_it_is_planned(
    values: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_config(SkyrlGrpoConfig, values)


CHILD = """
import json, os, pathlib, sys, time
stop, told = map(pathlib.Path, sys.argv[1:])
token = pathlib.Path(os.environ["RAY_AUTH_TOKEN_PATH"])
told.write_text(json.dumps({
    "mode": os.environ["RAY_AUTH_MODE"], "token": len(token.read_text()),
    "rights": oct(token.stat().st_mode & 0o777), "address": os.environ.get("RAY_ADDRESS"),
}))
print(os.getpid(), flush=True)
while not stop.exists():
    time.sleep(0.05)
sys.exit(143)
"""
PARENT = """
import sys
from collections.abc import Iterator
from pathlib import Path
from agent_env.training.skyrl import child
from agent_env.training.stopping import StopRequest
stop = StopRequest()
stop.listen()
sys.exit(child.run(sys.argv[1:], stop, Path(sys.argv[1]), module="stands_for_skyrl"))
"""


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The program's part that runs SkyRL, and a child that stands for SkyRL."""
    (tmp_path / "stands_for_skyrl.py").write_text(CHILD)
    words = [str(tmp_path / name) for name in ("stop", "told.json")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "RAY_ADDRESS": "10.0.0.9:6379"}
    command = [sys.executable, "-c", PARENT, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as running:
        yield running


def child_of(parent: subprocess.Popen[str]) -> int:
    assert parent.stdout is not None
    return int(parent.stdout.readline())


def test_a_stop_reaches_the_child_as_a_file_and_its_ray_wants_a_token(
    parent: subprocess.Popen[str], tmp_path: Path
) -> None:
    child_of(parent)
    parent.send_signal(signal.SIGTERM)
    assert parent.wait(30) == 143
    assert json.loads((tmp_path / "told.json").read_text()) == {
        "mode": "token",
        "token": 64,
        "rights": "0o600",
        "address": None,
    }


def test_a_parent_that_is_killed_leaves_no_child_on_the_gpu(
    parent: subprocess.Popen[str],
) -> None:
    child = child_of(parent)
    parent.kill()
    eventually(lambda: not alive(child))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
