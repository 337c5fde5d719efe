"""What a job's process is given, and that nothing of it stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from orchestrator.box.process import (
    Place,
    Process,
    argv,
    end_leftover,
    environment,
    job_json,
    started_ticks,
    unpack_workdir,
)
from orchestrator.box.redact import Redactor
from orchestrator.box.scan import checkpoints
from orchestrator.box.spec import BoxSpec, JobSpec, parse_spec
from orchestrator.box.work import last_words

from .rig import box_spec, until

JOB = {"name": "grpo", "needs": [], "results": ["out"], "retries": 1, "config": {"seed": 3}}


def spec_of(**changes: object) -> tuple[BoxSpec, JobSpec]:
    inputs = {"model": {"job": "sft", "path": "out/model"}}
    spec = parse_spec(box_spec(jobs=[JOB | {"inputs": inputs} | changes]))
    return spec, spec.jobs[0]


def test_a_program_is_started_by_its_module_with_one_json_file(tmp_path: Path) -> None:
    _, job = spec_of(program="grpo")
    place, python = Place(tmp_path, "grpo"), Path("/venv/bin/python")
    config = str(place.folder / "job.json")
    assert argv(job, place, python) == [str(python), "-m", "agent_env.training.grpo", config]
    assert job_json(job, place) == {
        "config": {"seed": 3},
        "out": str(place.work / "out"),
        "metrics": str(place.folder / "metrics.jsonl"),
        "inputs": {"model": str(place.folder / "inputs" / "model")},
    }


def test_a_job_gets_its_places_and_its_interpreter_but_no_way_to_end_the_box(
    tmp_path: Path,
) -> None:
    box, job = spec_of(command="x")
    place, base = Place(tmp_path, "grpo"), {"PATH": "/bin", "GPURUN_POWEROFF": "/x", "OTHER": "1"}
    env = environment(box, job, place, Path("/v/bin/python"), gpu=False, base=base)
    assert env["PATH"] == "/v/bin:/bin"
    assert env["PYTHONPATH"] == str(tmp_path / "lib")
    assert env["GPURUN_OUT"] == str(place.work / "out")
    assert (env["GPURUN_JOB"], env["OTHER"], env["PYTHONUNBUFFERED"]) == ("grpo", "1", "1")
    assert not {"GPURUN_POWEROFF", "UNSLOTH_DISABLE_CPU_FALLBACK"} & env.keys()
    on_gpu = environment(box, job, place, Path("/v/bin/python"), gpu=True, base=base)
    assert on_gpu["UNSLOTH_DISABLE_CPU_FALLBACK"] == "1"


@pytest.mark.parametrize("apart", ["", "setsid "])
def test_what_a_job_leaves_behind_is_killed_with_it(tmp_path: Path, apart: str) -> None:
    place = Place(tmp_path, "grpo")
    command = ["bash", "-c", f"{apart}bash -c 'echo $$ >child; exec sleep 60' & sleep 1; exit 3"]
    process = Process(place, command, {**os.environ, "GPURUN_OUT": str(place.work / "out")})
    assert until(lambda: process.exit_code()) == 3
    child = int((place.work / "child").read_text())
    until(lambda: started_ticks(child) is None)


def test_a_leftover_of_an_earlier_agent_is_ended_but_a_reused_pid_is_not(tmp_path: Path) -> None:
    place = Place(tmp_path, "grpo")
    process = Process(place, ["sleep", "60"], os.environ)
    pid_file = place.pid_file.read_text()
    place.pid_file.write_text(pid_file.replace(", ", ", 1"))
    assert not end_leftover(place)
    assert process.exit_code() is None
    place.pid_file.write_text(pid_file)
    assert end_leftover(place)
    assert until(lambda: process.exit_code()) == -signal.SIGKILL
    assert not end_leftover(place)


def test_what_outlived_both_the_agent_and_the_job_s_first_process_is_ended(tmp_path: Path) -> None:
    place = Place(tmp_path, "grpo")
    (place.work / "out").mkdir(parents=True)
    env = {**os.environ, "GPURUN_OUT": str(place.work / "out")}
    with subprocess.Popen(["sleep", "60"], env=env) as stray:
        place.pid_file.write_text(json.dumps([stray.pid, 1]))  # another's by now
        assert not end_leftover(place)
        assert stray.wait(10) == -signal.SIGKILL


def test_a_workdir_is_unpacked_once_and_never_outside(tmp_path: Path) -> None:
    place = Place(tmp_path, "grpo")
    (tmp_path / "train.py").write_text("1")
    with tarfile.open(tmp_path / "w.tar.gz", "w:gz") as packed:
        packed.add(tmp_path / "train.py", "train.py")
    unpack_workdir(tmp_path, place, "w.tar.gz")
    (place.work / "train.py").write_text("changed by the job")
    unpack_workdir(tmp_path, place, "w.tar.gz")
    assert (place.work / "train.py").read_text() == "changed by the job"

    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as packed:
        packed.add(tmp_path / "train.py", "../../escaped.py")
    with pytest.raises(tarfile.OutsideDestinationError):
        unpack_workdir(tmp_path, Place(tmp_path, "other"), "evil.tar.gz")
    assert not list(tmp_path.rglob("escaped.py"))


def test_pipes_in_the_place_of_a_jobs_log_and_checkpoint_hold_nobody_up(tmp_path: Path) -> None:
    place = Place(tmp_path, "grpo")
    checkpoint = place.work / "out" / "checkpoint-1"
    checkpoint.mkdir(parents=True)
    os.mkfifo(place.log)
    os.mkfifo(checkpoint / "trainer_state.json")
    with pytest.raises(OSError, match="log"):
        Process(place, ["true"], os.environ)
    assert last_words(place.log, Redactor()) == ""
    assert checkpoints(place.folder, ["out"]) == frozenset()


def test_a_jobs_last_words_cant_move_the_readers_cursor(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"\x1b]0;title\x07\x1b[2J oops\n")
    assert last_words(log, Redactor()) == " ]0;title  [2J oops"
