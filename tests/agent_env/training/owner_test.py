"""A job's name on an env server: its own at every start, and no other job's."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_env import AgentEnv
from agent_env.training.config import GrpoConfig
from agent_env.training.owner import job_owner
from agent_env.training.serving import open_env


def test_on_a_box_it_is_the_runs_and_the_jobs_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPURUN_RUN", "01k9")
    monkeypatch.setenv("GPURUN_JOB", "train")
    assert job_owner() == "01k9/train"


def test_elsewhere_it_is_the_machine_and_the_jobs_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPURUN_RUN", raising=False)
    monkeypatch.chdir(tmp_path)
    owners = []
    for name in ("job.json", str(tmp_path / "job.json"), "other.json"):
        monkeypatch.setattr("sys.argv", ["grpo.py", name])
        owners.append(job_owner())
    assert owners[0] == owners[1] != owners[2]
    assert owners[0].endswith(f":{tmp_path}/job.json")


def test_a_long_path_is_a_name_too_and_half_a_box_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPURUN_RUN", "01k9")
    monkeypatch.delenv("GPURUN_JOB", raising=False)
    owners = set()
    for name in ("\u6a21" * 80, "\u578b" * 80):
        monkeypatch.setattr("sys.argv", ["grpo.py", f"/{name}/job.json"])
        owners.add(job_owner())
        AgentEnv("http://127.0.0.1:9", owner=job_owner()).close()
    assert len(owners) == 2


def test_a_program_names_itself_to_a_server_that_is_already_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPURUN_RUN", "01k9")
    monkeypatch.setenv("GPURUN_JOB", "train")
    with open_env(GrpoConfig(env_url="http://127.0.0.1:9"), sessions=1) as env:
        header = env._site.address.headers["Agent-Env-Owner"]
    assert header.startswith("01k9%2Ftrain/")


@pytest.mark.parametrize("owner", ["", "x" * 601, "\u00e9" * 101])
def test_a_name_that_no_header_can_carry_is_refused(owner: str) -> None:
    with pytest.raises(ValueError, match="owner: a name of 1 to 600 characters"):
        AgentEnv("http://127.0.0.1:9", owner=owner)
