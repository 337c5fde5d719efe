"""The programs as a box runs them: real processes, a real env server, a model small enough."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent_env import AgentEnv
from agent_env.client.local import LocalServer
from agent_env.training.checkpoints import latest_complete_checkpoint
from agent_env.training.config import GrpoConfig, OutageConfig
from agent_env.training.config.numbers import NUMBERS
from agent_env.training.interruption import Interruption
from agent_env.training.job import read_job
from agent_env.training.metrics import TIMES
from agent_env.training.programs.grpo import run as run_grpo
from agent_env.training.programs.outage import run as run_outage
from agent_env.training.stopping import StopRequest
from agent_env.training.trained_on import RECORD

# Each starts the trainer several times, and its imports alone take a while on a busy machine.
pytestmark = [pytest.mark.trl, pytest.mark.timeout(240)]

REPOSITORY = Path(__file__).parents[3]

SMALL = {"eval_tasks": 4, "eval_samples": 2}
GRPO = SMALL | {
    "steps": 6,
    "rollouts_per_step": 8,
    "rollouts_per_task": 4,
    "save_steps": 2,
    "eval_steps": 3,
}


@dataclass
class Job:
    """A job's folder, and its program as a process."""

    folder: Path
    program: str

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def write(self, config: dict[str, Any], model: Path | None = None) -> Job:
        self.folder.mkdir()
        inputs = {"model": str(model)} if model else {}
        job = {
            "config": config,
            "out": str(self.out),
            "metrics": str(self.folder / "metrics.jsonl"),
            "inputs": inputs,
        }
        (self.folder / "job.json").write_text(json.dumps(job))
        return self

    @contextmanager
    def started(self) -> Iterator[subprocess.Popen[str]]:
        """The program's process; its log is read line by line, its stderr goes to a file."""
        module = f"agent_env.training.{self.program}"
        command = [sys.executable, "-m", module, str(self.folder / "job.json")]
        environment = {"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"}
        with (
            (self.folder / "stderr.txt").open("w") as stderr,
            subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            ) as process,
        ):
            yield process
            process.communicate()

    def run(self) -> int:
        with self.started() as process:
            pass
        return process.returncode

    def signal_at(self, line: str, number: signal.Signals) -> int:
        """Start it and signal its group, as a box does, when its log says `line`; its status."""
        with self.started() as process:
            assert process.stdout is not None
            seen = next((text for text in process.stdout if text.startswith(line)), None)
            os.killpg(process.pid, number)
        assert seen, self.stderr
        return process.returncode

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics file without what differs between any two runs."""
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        return [
            {key: value for key, value in json.loads(line).items() if key not in TIMES}
            for line in lines
        ]

    @property
    def stderr(self) -> str:
        return (self.folder / "stderr.txt").read_text()


def unlisted(program: str, final: dict[str, Any]) -> set[str]:
    """What the last line tells that no runbook may name."""
    alike = tuple(name for name in NUMBERS[program] if name.endswith("/"))
    told = final.keys() - {"step", "max_steps", "kind", *NUMBERS[program]}
    return {name for name in told if not name.startswith(alike)}


def untold(program: str, final: dict[str, Any]) -> set[str]:
    """What a runbook may name and the last line doesn't tell, times apart."""
    names = {name for name in NUMBERS[program] if not name.endswith("/")}
    return names - final.keys() - TIMES


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jobs")


@pytest.fixture(scope="module")
def warm(home: Path) -> Job:
    """A model that has seen just enough to make well-formed calls now and then."""
    config = SMALL | {"steps": 120, "batch_rows": 8, "demonstrations": 40, "noise": 0.0}
    job = Job(home / "sft", "sft").write(config)
    assert job.run() == 0, job.stderr
    return job


@pytest.fixture(scope="module")
def model(warm: Job) -> Path:
    return warm.out / "model"


@pytest.fixture(scope="module")
def undisturbed(home: Path, model: Path) -> Job:
    job = Job(home / "grpo", "grpo").write(GRPO, model)
    assert job.run() == 0, job.stderr
    return job


def test_a_warm_start_leaves_a_model_and_ends_with_its_eval(warm: Job) -> None:
    final = warm.metrics()[-1]
    assert final["kind"] == "final"
    assert unlisted("sft", final) == untold("sft", final) == set()
    assert 0 < final["eval_reward"] <= 1
    assert (warm.out / "model" / "model.safetensors").exists()
    assert not (warm.out / "model.partial").exists()


def test_a_warm_start_under_its_gate_fails_and_leaves_no_model(home: Path) -> None:
    config = SMALL | {"steps": 1, "demonstrations": 4, "gate": 1.0, "extra_rounds": 0}
    job = Job(home / "chance", "sft").write(config)
    assert job.run() == 1
    assert "the gate is 1.0" in job.stderr
    assert not (job.out / "model").exists()
    assert "final" not in {line["kind"] for line in job.metrics()}


def test_a_run_evaluates_before_during_and_after_and_tells_the_rise(undisturbed: Job) -> None:
    lines = undisturbed.metrics()
    evals = {line["step"]: line["reward"] for line in lines if line["kind"] == "eval"}
    assert sorted(evals) == [0, 3, 6]
    assert [line["step"] for line in lines if line["kind"] == "train"] == [1, 2, 3, 4, 5, 6]
    final = lines[-1]
    assert final["eval_reward_before"] == evals[0]
    assert final["eval_reward_after"] == evals[6]
    assert final["rise"] == pytest.approx(evals[6] - evals[0], abs=2e-6)
    assert {line["rollouts"] for line in lines if "rollouts" in line} == {8}
    rewards = [line["reward"] for line in lines if line["kind"] == "train"]
    assert final["train_reward"] == pytest.approx(sum(rewards) / len(rewards), abs=2e-6)
    assert unlisted("grpo", final) == untold("grpo", final) == set()
    assert 0 <= final["flat_groups"] < 1
    assert "gpu_gb" not in (undisturbed.folder / "metrics.jsonl").read_text()
    assert (undisturbed.out / "model" / "model.safetensors").exists()


def test_a_run_whose_groups_have_no_spread_ends_with_a_warning(
    home: Path, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    # So cold, every rollout of a group is the same one.
    config = GRPO | {"steps": 2, "eval_tasks": 1, "temperature": 1e-3}
    job = Job(home / "flat", "grpo").write(config, model)
    run_grpo(read_job(job.folder / "job.json", GrpoConfig), StopRequest())
    final = job.metrics()[-1]
    assert (final["flat_groups"], final["unscored"]) == (1, 0)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("warning: no group of any step had two different rewards")
    assert f"mean is {final['train_reward']:.3f}" in last


def test_a_full_disk_is_one_line_and_no_traceback(home: Path, model: Path) -> None:
    job = Job(home / "full", "grpo").write(GRPO, model)
    job.out.mkdir()
    (job.out / f"{RECORD}.partial").symlink_to("/dev/full")
    assert job.run() == 1
    (line,) = job.stderr.splitlines()
    assert line.startswith("failed: the disk is full: [Errno 28] No space left on device")
    assert line.endswith(f"agent_env.training.grpo {job.folder / 'job.json'}")


def test_a_trainer_killed_twice_ends_with_the_metrics_of_an_undisturbed_run(
    home: Path, model: Path, undisturbed: Job
) -> None:
    # A server that outlives it has room for one run: each start has that of the one before.
    with LocalServer("gridsim", max_sessions=8) as server:
        config = GRPO | {"env_url": server.url, "batch": 8}
        job = Job(home / "killed", "grpo").write(config, model)
        assert job.signal_at("train 3/6", signal.SIGKILL) == -signal.SIGKILL
        assert job.signal_at("train 5/6", signal.SIGKILL) == -signal.SIGKILL
        newest = latest_complete_checkpoint(job.out)
        assert newest is not None
        # What the trainer would go on from in silence, with a fresh optimizer.
        (newest / "optimizer.pt").unlink()
        assert job.run() == 0, job.stderr
    assert job.metrics() == undisturbed.metrics()


def test_a_trainer_asked_to_stop_checkpoints_and_goes_on_where_it_stopped(
    home: Path, model: Path, undisturbed: Job
) -> None:
    job = Job(home / "stopped", "grpo").write(GRPO, model)
    # Step 3 has an eval, which is cut short and made up for; step 5 has nothing but its end.
    for line in ("train 3/6", "train 5/6"):
        assert job.signal_at(line, signal.SIGTERM) == 143
        newest = latest_complete_checkpoint(job.out)
        assert newest is not None
        assert job.metrics()[-1]["step"] == int(newest.name.removeprefix("checkpoint-"))
        assert {line["kind"] for line in job.metrics()} == {"train", "eval"}
    assert job.run() == 0, job.stderr
    assert job.metrics() == undisturbed.metrics()


MORTAL = """
import os, signal
from pathlib import Path
from agent_env.bundles.gridsim.gridsim import GridSim

SEEN = Path(__file__).with_name("seen")

class Mortal(GridSim):
    def open(self, data):
        task = super().open(data)
        score = task.score

        def counted():
            with SEEN.open("a") as seen:
                seen.write(".")
            if SEEN.stat().st_size in (20, 40):
                os.kill(os.getpid(), signal.SIGKILL)
            return score()

        task.score = counted
        return task

bundle = Mortal()
"""


def test_a_run_whose_own_server_is_killed_under_a_call_has_the_metrics_of_an_undisturbed_one(
    home: Path,
    model: Path,
    undisturbed: Job,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    bundle = home / "mortal"
    bundle.mkdir()
    (bundle / "__init__.py").write_text(MORTAL)
    job = Job(home / "own", "grpo").write(GRPO | {"bundle": str(bundle)}, model)
    # In this process, as the imports of a trainer take longer than the run.
    run_grpo(read_job(job.folder / "job.json", GrpoConfig), StopRequest())
    assert capsys.readouterr().err.count("it was started again") == 2
    # The connections that broke are counted; nothing else may differ.
    disturbed, quiet = job.metrics(), undisturbed.metrics()
    counted, none = (
        sum(line.pop(name, 0) for line in lines for name in ("env/reopened", "env/continued"))
        for lines in (disturbed, quiet)
    )
    assert disturbed == quiet
    assert (counted > 0, none) == (True, 0)


def test_an_eval_counts_every_rollout_and_writes_it_down(home: Path, model: Path) -> None:
    job = Job(home / "evaluate", "evaluate").write({"tasks": 3, "samples": 2}, model)
    assert job.run() == 0, job.stderr
    lines = (job.out / "rollouts.jsonl").read_text().splitlines()
    rewards = [json.loads(line)["reward"] for line in lines]
    final = job.metrics()[-1]
    assert (len(rewards), final["rollouts"], final["unscored"]) == (6, 6, 0)
    assert final["eval_reward"] == pytest.approx(sum(rewards) / 6, abs=1e-6)
    assert unlisted("evaluate", final) == untold("evaluate", final) == set()
    assert {json.loads(line)["split"] for line in lines} == {"coarse-eval"}


@dataclass(frozen=True)
class Outage:
    """What a rule's outage costs: scored rollouts of 8."""

    rule: str
    interrupted: int
    next: int
    after_s: float = 10.0
    words: str = "under its first tool call"


OUTAGES = [
    Outage("old", interrupted=0, next=0),
    Outage("seed", interrupted=0, next=8, after_s=1e-3, words="as its last rollout began"),
    Outage("continued", interrupted=8, next=8),
    Outage("stock", interrupted=0, next=8),
]


def run_through_outage(
    folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch, **config: Any
) -> Job:
    """In this process, as the imports of a trainer take longer than the run."""
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    small = {"rollouts_per_step": 8, "rollouts_per_task": 4, "down_s": 0.5}
    job = Job(folder, "outage").write(small | config, model)
    run_outage(read_job(folder / "job.json", OutageConfig), StopRequest())
    return job


@pytest.mark.parametrize("outage", OUTAGES, ids=lambda outage: outage.rule)
def test_an_outage_costs_what_its_rule_says_and_no_lost_rollout_counts_as_zero(
    home: Path,
    model: Path,
    outage: Outage,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = {"rule": outage.rule, "interrupt_after_s": outage.after_s}
    job = run_through_outage(home / f"outage-{outage.rule}", model, monkeypatch, **config)
    assert f"into step 2, {outage.words}" in capsys.readouterr().out
    final = job.metrics()[-1]
    scored = [final[f"{part}_scored"] for part in ("interrupted", "next", "after")]
    unscored = [final[f"{part}_unscored"] for part in ("interrupted", "next", "after")]
    assert scored == [outage.interrupted, outage.next, 8]
    assert unscored == [8 - count for count in scored]
    assert (final["interrupted_continued"], final["interrupted_zero"]) == (outage.interrupted, 0)
    assert ("interrupted_reward" in final) == (outage.interrupted > 0)
    assert final["down_s"] >= 0.5
    if outage.next and outage.interrupted == 0:  # the next step begins without the server
        assert final["next_seconds"] >= 0.5
    assert untold("outage", final) <= {"interrupted_reward"}
    assert unlisted("outage", final) == {"rule"}  # which is no number


def test_an_outages_server_makes_the_rewards_that_were_asked_for(tmp_path: Path) -> None:
    with closing(Interruption(OutageConfig(reward="mean"), tmp_path)) as interruption:
        assert AgentEnv(interruption.url).reward == "mean"


def test_a_run_whose_server_keeps_a_journal_learns_the_same_whichever_step_is_interrupted(
    home: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned = []
    for step in (1, 2):
        config = {"rule": "continued", "interrupt_step": step, "down_s": 0.01}
        job = run_through_outage(home / f"outage-in-{step}", model, monkeypatch, **config)
        trained = [line for line in job.metrics() if line["kind"] == "train"]
        learned.append([(line["reward"], line["loss"], line["grad_norm"]) for line in trained])
    assert len(learned[0]) == 4
    assert learned[0] == learned[1]
