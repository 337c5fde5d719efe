"""A run that reports to W&B and to trackio leaves both reports in its results, numbers and all,
also where neither W&B nor the hub of trackio's Space can be reached.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from agent_env import AgentEnv
from agent_env.training import models, tiny
from agent_env.training.demonstrations import tools_of

# It starts the trainer, whose imports alone take a while on a busy machine.
pytestmark = [pytest.mark.trl, pytest.mark.timeout(240)]

REPOSITORY = Path(__file__).parents[3]
NOWHERE = "http://127.0.0.1:1"
CONFIG = {
    "split": "train",
    "eval_split": "train",
    "steps": 2,
    "rollouts_per_step": 4,
    "rollouts_per_task": 2,
    "save_steps": 9,
    "eval_tasks": 2,
    "eval_samples": 2,
    "report_to": ["wandb", "trackio"],
}
TOLD = ("reward", "score/near", "score/early", "env/unscored", "env/tool_calls")
BUNDLE = '''
from agent_env import Bundle, Task, TaskData, tool


class Given(Task):
    """Scores what its data says, so that a model that has learned nothing has numbers to tell."""

    def reset(self, seed: int | None) -> None:
        pass

    @tool
    def commit(self) -> str:
        """Say that you are finished."""
        return "committed"

    def score(self) -> dict[str, float]:
        return {"near": self.data.data["near"], "early": 0.25}


class GivenBundle(Bundle):
    name = "given"
    splits = ("train",)
    rewarded = "near"

    def tasks(self, split: str) -> list[TaskData]:
        return [
            TaskData(
                id=f"given-{index}",
                name=f"given {index}",
                split=split,
                index=index,
                prompt="Say that you are finished.",
                data={"near": 0.1 + 0.2 * index},
            )
            for index in range(4)
        ]

    def open(self, data: TaskData) -> Task:
        return Given(data)


bundle = GivenBundle()
'''


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that ran `grpo` as a box starts it, told of servers that are away."""
    folder = tmp_path_factory.mktemp("reported") / "a job"
    (folder / "given").mkdir(parents=True)
    (folder / "given" / "__init__.py").write_text(BUNDLE)
    bundle = str(folder / "given")
    with AgentEnv.local(bundle) as env:
        tokenizer = tiny.build_tokenizer([env.rows("train")[0]["prompt"]], tools_of(env.factory()))
    models.save_model(tiny.build_model(tokenizer), tokenizer, folder / "model")
    job = {
        "config": CONFIG | {"bundle": bundle},
        "out": str(folder / "out"),
        "metrics": str(folder / "metrics.jsonl"),
        "inputs": {"model": str(folder / "model")},
    }
    (folder / "job.json").write_text(json.dumps(job))
    ran = subprocess.run(
        [sys.executable, "-m", "agent_env.training.grpo", "job.json"],
        cwd=folder,
        env={
            "PYTHONPATH": str(REPOSITORY),
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "WANDB_BASE_URL": NOWHERE,
            "WANDB_API_KEY": 40 * "a",
            "WANDB_ERROR_REPORTING": "false",
            "TRACKIO_SPACE_ID": "me/space",
            "HF_ENDPOINT": NOWHERE,
            "HF_TOKEN": "hf_a",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    (folder / "log.txt").write_text(ran.stdout + ran.stderr)
    assert ran.returncode == 0, ran.stderr
    return folder


def metrics(run: Path) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["kind"] != "final"]


def wanted(run: Path) -> list[dict[str, float]]:
    """What a report has to tell, line by line, in the trainer's names."""
    return [
        {f"{line['kind']}/{name}": line[name] for name in TOLD}
        | {"train/global_step": line["step"]}
        for line in metrics(run)
    ]


def told_wandb(run: Path) -> list[dict[str, Any]]:
    """W&B's lines, oldest first; version 0.31 has no reader of its own but for uploads."""
    (file,) = run.glob("out/wandb/offline-run-*/run-*.wandb")
    read = import_module("wandb.proto.wandb_internal_pb2").Record.FromString
    records = map(read, _records(file.read_bytes()))
    return [
        {"/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.HasField("history")
    ]


def _records(data: bytes) -> Iterator[bytes]:
    """LevelDB's log after 7 bytes: blocks of 32 KiB of CRC, length, part, bytes.

    A part is the whole (1), first (2), middle (3) or last (4) of a record.
    """
    at, parts = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, part = struct.unpack_from("<IHB", data, at)
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if part in (1, 4):
            yield parts
            parts = b""


def told_trackio(run: Path) -> list[dict[str, Any]]:
    """Trackio's lines, by a process of its own: it settles at its import where it reads."""
    code = (
        "import json, trackio; from trackio.sqlite_storage import SQLiteStorage;"
        "(run,) = trackio.Api().runs('huggingface'); assert run.name == 'a job';"
        "print(json.dumps(SQLiteStorage.get_logs('huggingface', run.name, run_id=run.id)))"
    )
    environment = {"PATH": "/usr/bin:/bin", "TRACKIO_DIR": str(run / "out" / "trackio")}
    command = [sys.executable, "-c", code]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines: list[dict[str, Any]] = json.loads(shown.stdout)
    return lines


@pytest.mark.parametrize("told", [told_wandb, told_trackio])
def test_a_report_tells_the_rewards_scores_and_losses_of_the_runs_own_metrics(
    run: Path, told: Callable[[Path], list[dict[str, Any]]]
) -> None:
    """The losses are those of rollouts: the fraction that the infrastructure lost."""
    names = wanted(run)
    lines = [line for line in told(run) if {"train/reward", "eval/reward"} & line.keys()]
    assert [{key: line[key] for key in want} for want, line in zip(names, lines, strict=True)] == [
        pytest.approx(want, abs=1e-6) for want in names
    ]
    assert len({want["train/reward"] for want in names if "train/reward" in want}) == 2


def test_servers_that_cannot_be_reached_are_told_and_the_reports_kept_with_the_results(
    run: Path,
) -> None:
    log, out = (run / "log.txt").read_text(), run / "out"
    assert f"warning: {NOWHERE} can't be reached ([Errno 111] Connection refused)" in log
    assert f"kept in {out}/wandb only; send it later with: wandb sync" in log
    assert f"kept in {out}/trackio only; send it later with: TRACKIO_DIR={out}/trackio" in log
    assert "--space-id me/space" in log
    assert {path.name for path in run.iterdir() if path.is_dir()} == {
        "given",
        "home",
        "model",
        "out",
    }
    # A box keeps regular files.
    assert [path for path in out.rglob("*") if path.is_symlink()] == []
