"""A job file is read or refused; a program's exit status says whether trying again helps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_env.training.config import CONFIGS, ConfigError, GrpoConfig
from agent_env.training.job import JobFailed, read_job


def write(folder: Path, **values: Any) -> Path:
    job = {"config": {}, "out": str(folder / "out"), "metrics": str(folder / "metrics.jsonl")}
    path = folder / "job.json"
    path.write_text(json.dumps(job | values))
    return path


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"agent_env.training.{program}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_job_knows_its_config_and_where_its_results_go(tmp_path: Path) -> None:
    job = read_job(write(tmp_path, config={"steps": 3}, attempt=2), GrpoConfig)
    assert (job.config.steps, job.out, job.metrics) == (
        3,
        tmp_path / "out",
        tmp_path / "metrics.jsonl",
    )


def test_the_model_of_another_job_is_found_by_the_inputs_name(tmp_path: Path) -> None:
    job = read_job(write(tmp_path, inputs={"model": str(tmp_path / "m")}), GrpoConfig)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    assert job.model_source == str(tmp_path / "m")


def test_an_input_that_is_no_model_fails_the_job_with_the_folder_that_was_looked_at(
    tmp_path: Path,
) -> None:
    job = read_job(write(tmp_path, inputs={"model": str(tmp_path / "m")}), GrpoConfig)
    with pytest.raises(JobFailed, match=str(tmp_path / "m")):
        _ = job.model_source


def test_a_model_named_in_the_config_needs_no_input(tmp_path: Path) -> None:
    job = read_job(write(tmp_path, config={"model": "someone/model"}), GrpoConfig)
    assert job.model_source == "someone/model"


def test_a_model_in_the_home_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    job = read_job(write(tmp_path, config={"model": "~/model"}), GrpoConfig)
    assert job.model_source == f"{tmp_path}/model"


def test_a_missing_input_is_a_wrong_config(tmp_path: Path) -> None:
    job = read_job(write(tmp_path), GrpoConfig)
    with pytest.raises(ConfigError, match="no input named 'model'"):
        _ = job.model_source


def test_relative_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.out: .*absolute"):
        read_job(write(tmp_path, out="out"), GrpoConfig)


@pytest.mark.parametrize("program", CONFIGS)
def test_a_program_with_a_wrong_config_exits_2_before_it_needs_torch(
    tmp_path: Path, program: str
) -> None:
    done = run(program, str(write(tmp_path, config={"sede": 1})))
    assert done.returncode == 2
    assert done.stderr == "config.sede: unknown key, did you mean 'seed'?\n"
    assert not (tmp_path / "metrics.jsonl").exists()


def test_a_program_without_its_file_says_how_it_is_called(tmp_path: Path) -> None:
    assert run("sft").stderr == "usage: python -m agent_env.training.sft job.json\n"
    assert run("sft", str(tmp_path / "none.json")).returncode == 2


def test_a_stop_that_comes_while_the_interpreter_ends_changes_no_exit_status(
    tmp_path: Path,
) -> None:
    late = """
import os, sys
from agent_env.training.job import run_program
class Late:
    def __del__(self, kill=os.kill, me=os.getpid()):
        kill(me, 15)
late = Late()
sys.exit(run_program("grpo"))
"""
    command = [sys.executable, "-c", late, str(tmp_path / "missing.json")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, "missing.json" in ended.stderr) == (2, True)
